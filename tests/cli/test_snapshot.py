"""``steersman snapshot``: keys, versions, what consumers see, and what is taken back."""

import json
import shutil
import sys
from datetime import UTC, datetime
from hashlib import sha256
from uuid import uuid4

import pytest

from steersman.cli.signing_keys import (
    ask_passphrase,
    consumer_of,
    make_registry,
    make_sample_registry,
    need_publisher,
)
from steersman.db.tenants import find_tenant
from steersman.errors import SigningError
from steersman.platform.postgres.database import as_tenant
from steersman.points.state_bytes import pack_state
from steersman.policies import LinUCB
from steersman.registry.description import describe
from steersman.registry.snapshot import pack_snapshot
from tests.kept import run
from tests.learning.shipping_world import PASSPHRASE, lessons, promote_point
from tests.learning.world import declared, document, learn_all, traffic

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

POINT = ("search", "depth")


@pytest.fixture(scope="module")
def shell(command):
    """The command, with a passphrase in its environment and a tenant with keys."""
    command.environment["STEERSMAN_ROOT_PASSPHRASE"] = PASSPHRASE
    return command


@pytest.fixture
def name(shell):
    name = f"t-{uuid4().hex[:12]}"
    shell("tenant", "create", name)
    return name


@pytest.fixture
def ready(shell, name, database):
    """A tenant with keys, whose point has learned from twenty decisions."""
    shell("snapshot", "keys", "init", "--tenant", name)
    learn(database, name, 20)
    return name


def learn(database, name, n, *, seed=0, many=False):
    async def work():
        tenant = await find_tenant(database, name)
        connection = await database.connect("worker")
        await connection.execute("DELETE FROM work")
        await connection.close()
        row = await declared(database, tenant.id, policy="lin_ts")
        await (lessons if many else traffic)(database, row, n, seed=seed)
        await learn_all(database)

    run(work())


def test_a_registry_that_is_made_anew_does_not_pass_for_the_trusted_one(tmp_path, monkeypatch):
    file = make_registry(tmp_path, "acme", PASSPHRASE)
    old = file.read_bytes()
    assert make_registry(tmp_path, "acme", PASSPHRASE) == file
    monkeypatch.setenv("STEERSMAN_REGISTRY", str(tmp_path / "other registry"))
    monkeypatch.setenv("STEERSMAN_KEYS", str(tmp_path / "other keys"))
    with pytest.raises(
        SigningError, match=r"does not trust the existing registry: .*root of another registry"
    ):
        make_registry(tmp_path, "acme", PASSPHRASE)
    assert file.read_bytes() == old
    file.write_bytes((tmp_path / "other keys" / "acme" / "root.json").read_bytes())
    assert make_registry(tmp_path, "acme", PASSPHRASE) == file
    assert consumer_of(tmp_path, "acme").refresh().online


def test_a_passphrase_that_was_never_written_is_made_again(tmp_path):
    (tmp_path / "root-passphrase").touch()
    file = make_sample_registry(tmp_path, "acme")
    assert len(file.read_text()) > 20
    assert make_sample_registry(tmp_path, "acme") is None


def test_no_passphrase_is_made_up_for_keys_that_were_brought(tmp_path):
    """It would be taken for that of the root key, and refused, without anybody being asked."""
    make_registry(tmp_path / "here", "acme", PASSPHRASE)
    home = tmp_path / "there"
    for part in ("keys", "registry"):
        shutil.copytree(tmp_path / "here" / part, home / part)
    (home / "keys" / "acme" / "root.pem").unlink()
    assert make_sample_registry(home, "acme") is None
    assert consumer_of(home, "acme").refresh().online
    assert not (home / "root-passphrase").exists()


def test_what_was_learned_is_published_shown_and_fetched(shell, ready, tmp_path):
    made = shell.json("snapshot", "publish", *POINT, "--tenant", ready)
    assert (made["version"], made["samples"]) == ("0.1.1", 20)
    again = shell("snapshot", "publish", *POINT, "--tenant", ready)
    assert "0.1.1" in again
    assert "held out" in again
    shown = shell.json("snapshot", "show", *POINT, "0.1.1", "--tenant", ready)
    assert shown["sha256"] == made["sha256"]
    assert shown["published_at"] is not None
    base = shell.json("snapshot", "show", *POINT, "0.1.0", "--tenant", ready)
    assert base["status"] == "line"
    listed = shell.json("snapshot", "list", "--tenant", ready)
    told = ("version", "status", "mark", "serves")
    assert [tuple(row[name] for name in told) for row in listed] == [
        ("0.1.0", "line", None, True),
        ("0.1.1", "published", "released", False),
    ]
    assert "0.1.0+20" in shell("snapshot", "list", *POINT, "--tenant", ready)
    said = shell("snapshot", "list", "/".join(POINT), "--tenant", ready)
    assert f"not found: decision point {'/'.join(POINT)}/… of tenant {ready}" in said
    file = tmp_path / "state.zst"
    fetched = shell.json("snapshot", "fetch", *POINT, "--tenant", ready, "--out", file)
    assert (fetched["version"], fetched["source"]) == ("0.1.1", "registry")
    assert sha256(file.read_bytes()).hexdigest() == made["sha256"]
    lines = shell("snapshot", "manifest", "--tenant", ready).splitlines()
    assert [json.loads(line)["version"] for line in lines] == ["0.1.1"]
    assert shell.json("snapshot", "manifest", "--tenant", ready)[0]["url"] == made["url"]


def test_bytes_are_made_again_from_the_log(shell, ready, database, tmp_path):
    made = shell.json("snapshot", "publish", *POINT, "--tenant", ready)
    file = tmp_path / "again.zst"
    found = shell.json(
        *("snapshot", "reproduce", *POINT, made["version"], "--tenant", ready, "--out", file)
    )
    assert found == {
        "version": "0.1.1",
        "same": True,
        "same_state": True,
        "bytes": made["size"],
    }
    assert file.stat().st_size == made["size"]

    async def damage():
        connection = await database.connect("owner")
        tenant = await find_tenant(database, ready)
        async with as_tenant(connection, tenant.id):
            await connection.execute("UPDATE update SET reward_change = 0.5 WHERE seq = 3")
        await connection.close()

    run(damage())
    base = shell.json("snapshot", "reproduce", *POINT, "0.1.0", "--tenant", ready)
    assert base["same"]  # it has learned nothing
    said = shell("snapshot", "reproduce", *POINT, "0.1.1", "--tenant", ready, status=1)
    assert "cannot reproduce" in said


def test_a_candidate_is_published_and_compared(shell, ready, tmp_path):
    shell("snapshot", "publish", *POINT, "--tenant", ready)
    spec = tmp_path / "candidate.yaml"
    spec.write_text(document(policy="lin_ts", dim=16))
    made = shell.json("snapshot", "publish", *POINT, "--spec", spec, "--tenant", ready)
    assert made["version"] == "0.2.1"
    assert made["evidence"]["relearned"]["kept"] == 20
    arguments = ("snapshot", "diff", *POINT, "0.1.1", "0.2.1", "--tenant", ready, "--share", 1)
    text = shell(*arguments)
    assert "minor" in text
    assert "feature_hash" in text
    assert "traffic on 20 logged requests" in text
    assert shell.json(*arguments)["parameters"]["dim"] == {"before": 12, "after": 16}
    spec.write_text(document(policy="lin_ts", reward="window_s: 60"))
    said = shell("snapshot", "publish", *POINT, "--spec", spec, "--tenant", ready, status=1)
    assert "the candidate changes the reward" in said


def test_the_guard_is_overruled_with_a_reason(shell, name, database, tmp_path):
    shell("snapshot", "keys", "init", "--tenant", name)
    learn(database, name, 4000, many=True)
    shell("snapshot", "publish", *POINT, "--tenant", name)
    spec = tmp_path / "bad.yaml"
    spec.write_text(document(policy="fixed").replace("action: deep}", "action: middle}"))
    arguments = ("snapshot", "publish", *POINT, "--spec", spec, "--tenant", name)
    said = shell(*arguments, status=1)
    assert "held-out decisions" in said
    assert "--force REASON" in said
    forced = shell(*arguments, "--force", "to show a rollback")
    assert "1.0.1" in forced
    audit = shell.json("audit", "list", "--tenant", name)
    assert any(row["detail"].get("force") == "to show a rollback" for row in audit)


def test_a_version_is_retracted_unless_it_serves(shell, ready, database):
    shell("snapshot", "publish", *POINT, "--tenant", ready)
    learn(database, ready, 5, seed=1)
    shell("snapshot", "publish", *POINT, "--tenant", ready)
    why = ("--tenant", ready, "--reason", "learned from a bot")
    done = shell.json("snapshot", "retract", *POINT, "0.1.1", *why)
    assert done["retracted_at"] is not None
    shell("snapshot", "retract", *POINT, "0.1.1", *why)  # again changes nothing
    said = shell("snapshot", "fetch", *POINT, "0.1.1", "--tenant", ready, status=1)
    assert "0.1.1" in said
    listed = shell.json("snapshot", "list", "--tenant", ready)
    assert [(row["status"], row["mark"]) for row in listed] == [
        ("line", None),
        ("retracted", None),
        ("published", "released"),
    ]

    async def serve():
        tenant = await find_tenant(database, ready)
        await promote_point(database, tenant.id, "0.1.2")

    run(serve())
    said = shell("snapshot", "retract", *POINT, "0.1.2", *why, status=1)
    assert "--take-back" in said
    done = shell.json("snapshot", "retract", *POINT, "0.1.2", "--take-back", *why)
    assert done["serves"] == "0.1.0"  # 0.1.1 was retracted before
    (row, *_) = shell.json("snapshot", "list", "--tenant", ready)
    assert (row["version"], row["serves"]) == ("0.1.0", True)
    (incident,) = shell.json("rollout", "incidents", "--tenant", ready)
    assert incident["kind"] == "retracted"
    shell("snapshot", "fetch", *POINT, "0.1.2", "--tenant", ready, status=1)
    shell("snapshot", "unpin", *POINT, *why)


def test_keys_are_made_once_rotated_and_revoked(shell, name, home):
    said = shell("snapshot", "publish", *POINT, "--tenant", name, status=1)
    assert "keys init" in said
    made = shell.json("snapshot", "keys", "init", "--tenant", name)
    assert shell.json("snapshot", "keys", "init", "--tenant", name) == made
    keys = home / "keys" / name
    assert (keys / "root.pem").stat().st_mode & 0o077 == 0
    old = (keys / "timestamp.pem").read_bytes()
    shell("snapshot", "keys", "rotate", "timestamp", "--tenant", name)
    assert (keys / "timestamp.pem").read_bytes() != old
    arguments = ("snapshot", "keys", "revoke", "targets", "--tenant", name)
    assert "Usage" in shell(*arguments, status=2)  # a reason is missing
    shell(*arguments, "--reason", "the laptop was stolen")
    offline = home / "offline" / name
    offline.mkdir(parents=True)
    (keys / "root.pem").rename(offline / "root.pem")
    said = shell("snapshot", "keys", "rotate", "snapshot", "--tenant", name, status=1)
    assert "root" in said
    rotate = ("snapshot", "keys", "rotate", "snapshot", "--tenant", name)
    shell(*rotate, "--root-keys", offline)
    refreshed = shell.json("snapshot", "refresh", "--tenant", name)
    assert refreshed["expires"] > refreshed["root_expires"][:2]
    acts = [row["action"] for row in shell.json("audit", "list", "--tenant", name)]
    assert acts.count("keys.rotate") == 2
    assert acts.count("keys.revoke") == 1


def test_a_wrong_passphrase_is_refused(shell, name):
    shell("snapshot", "keys", "init", "--tenant", name)
    shell.environment["STEERSMAN_ROOT_PASSPHRASE"] = PASSPHRASE[::-1]
    try:
        said = shell("snapshot", "keys", "rotate", "targets", "--tenant", name, status=1)
    finally:
        shell.environment["STEERSMAN_ROOT_PASSPHRASE"] = PASSPHRASE
    assert "passphrase" in said


def test_a_consumer_elsewhere_needs_a_root_that_it_trusts(shell, ready, home):
    shell("snapshot", "publish", *POINT, "--tenant", ready)
    root = home / "trust" / ready / "root.json"
    kept = root.read_bytes()
    root.unlink()
    said = shell("snapshot", "fetch", *POINT, "--tenant", ready, status=1)
    assert "copy root.json" in said
    root.write_bytes(kept)
    source = home / "registry" / ready
    fetched = shell.json("snapshot", "fetch", *POINT, "--tenant", ready, "--source", source)
    assert fetched["version"] == "0.1.1"


def test_a_pin_is_taken_off(shell, ready, database):
    async def pin(seq):
        tenant = await find_tenant(database, ready)
        connection = await database.connect("worker")
        try:
            async with as_tenant(connection, tenant.id):
                if seq is not None:
                    await connection.execute("UPDATE decision_point SET pinned_seq = $1", seq)
                return await connection.fetchval("SELECT pinned_seq FROM decision_point")
        finally:
            await connection.close()

    assert run(pin(3)) == 3
    shell("snapshot", "unpin", *POINT, "--tenant", ready, "--reason", "it was a holiday")
    assert run(pin(None)) is None


@pytest.mark.parametrize("what", ["publish", "diff", "list"])
def test_an_unknown_point_is_refused(shell, ready, what):
    versions = ("0.1.0", "0.1.1") if what == "diff" else ()
    arguments = ("snapshot", what, "search", "nothing", *versions, "--tenant", ready)
    if what == "list":
        assert shell.json(*arguments) == []
    else:
        assert "tenant points" in shell(*arguments, status=1)


@pytest.mark.parametrize(
    "what",
    [
        ("retract", *POINT, "0.1.1", "--reason", " "),
        ("unpin", *POINT, "--reason", ""),
        ("publish", *POINT, "--force", ""),
        ("keys", "revoke", "targets", "--reason", " "),
    ],
    ids=lambda what: what[0],
)
def test_nothing_is_done_without_a_reason(shell, ready, what):
    shell("snapshot", "publish", *POINT, "--tenant", ready)
    assert "allowed are 1 to 500" in shell("snapshot", *what, "--tenant", ready, status=1)


def test_a_declaration_that_is_no_text_is_told(shell, ready, tmp_path):
    file = tmp_path / "point.yaml"
    file.write_bytes("# für alle\n".encode("latin-1"))
    said = shell("snapshot", "publish", *POINT, "--spec", file, "--tenant", ready, status=1)
    assert "byte 3 is not valid UTF-8" in said


def test_a_file_that_cannot_be_written_is_told(shell, ready, tmp_path):
    shell("snapshot", "publish", *POINT, "--tenant", ready)
    out = ("--out", tmp_path / "nowhere" / "it")
    for command in ("reproduce", "fetch"):
        said = shell("snapshot", command, *POINT, "0.1.1", *out, "--tenant", ready, status=1)
        assert "name a file in an existing, writable folder" in said


def test_no_keys_are_made_for_whoever_is_not_there(shell, name):
    """Folders are called by tenants' names: a name that is a path would be another's folder."""
    before = sorted(shell.home.rglob("*"))
    assert "tenant not found" in shell("snapshot", "keys", "init", "--tenant", f"{name}x", status=1)
    for wrong in (f"{name}/../other", "../keys", "", ".", f"{name}/"):
        for asked in (
            ("snapshot", "keys", "init"),
            ("snapshot", "refresh"),
            ("snapshot", "manifest"),
            ("audit", "verify"),
            ("rollout", "status"),
        ):
            assert "tenant name" in shell(*asked, "--tenant", wrong, status=2)
    made = [path for path in sorted(shell.home.rglob("*")) if path not in before]
    assert [path for path in made if {"keys", "registry", "trust"} & set(path.parts)] == []


def test_what_is_fetched_are_the_bytes_that_were_signed(shell, ready, tmp_path):
    """Another version of zstd than that of the publisher would make others of the same state."""
    home = shell.home
    publisher = need_publisher(home, ready)
    state = pack_state(LinUCB(["a", "b"], dim=2).state())
    other = zstd.compress(state, level=19)
    described = describe(
        LinUCB(["a", "b"], dim=2).state(),
        tenant=ready,
        skill="search",
        point="depth",
        version="7.0.0",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert other != pack_snapshot(LinUCB(["a", "b"], dim=2).state())
    publisher.publish(other, described)
    file = tmp_path / "state.zst"
    fetch = ("snapshot", "fetch", *POINT, "7.0.0", "--tenant", ready, "--out", file)
    assert shell.json(*fetch)["bytes"] == len(other)
    assert file.read_bytes() == other


def test_a_registry_that_was_restored_is_accepted_and_that_is_written_down(shell, ready):
    folder = shell.home / "registry" / ready
    old = shell.home / f"old-{ready}"
    shutil.copytree(folder, old)
    shell("snapshot", "publish", *POINT, "--tenant", ready)
    shutil.rmtree(folder)
    shutil.copytree(old, folder)
    assert "registry rollback detected" in shell("snapshot", "refresh", "--tenant", ready, status=1)
    shell("snapshot", "refresh", "--tenant", ready, "--accept-older", "the disk had died")
    shell("snapshot", "refresh", "--tenant", ready)
    entry = shell.json("audit", "list", "--tenant", ready, "--limit", 1)[0]
    assert (entry["action"], entry["detail"]) == (
        "registry.accept",
        {"reason": "the disk had died"},
    )


def test_a_passphrase_that_was_made_up_for_the_sample_is_no_other_tenants(tmp_path, monkeypatch):
    monkeypatch.delenv("STEERSMAN_ROOT_PASSPHRASE", raising=False)
    monkeypatch.delenv("STEERSMAN_KEYS", raising=False)
    monkeypatch.delenv("STEERSMAN_REGISTRY", raising=False)
    made_up = make_sample_registry(tmp_path, "sample").read_text()
    monkeypatch.setattr("click.prompt", lambda text, **_: text)
    assert ask_passphrase(tmp_path, new_for="sample") == made_up
    assert ask_passphrase(tmp_path, new_for="production") == "New passphrase of the root key"
