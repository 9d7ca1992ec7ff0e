"""``steersman audit``: list, verify and accept, with their exit status."""

import shutil
from uuid import uuid4

import pytest

from steersman.registry.bucket import open_place
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from tests.db.rows import connected
from tests.kept import run


@pytest.fixture
def name(command):
    name = f"t-{uuid4().hex[:12]}"
    command("tenant", "create", name)
    for key in ("one", "two"):
        command("key", "create", key, "--tenant", name)
    return name


def tamper(database, name, statement):
    async def do():
        async with connected(database, None) as connection, connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            tenant = await connection.fetchval("SELECT id FROM tenant WHERE name = $1", name)
            await connection.execute(statement, tenant)

    run(do())


def test_rows_are_listed_with_their_chain(command, name):
    rows = command.json("audit", "list", "--tenant", name)
    assert [(row["seq"], row["action"]) for row in rows] == [
        (3, "key.create"),
        (2, "key.create"),
        (1, "tenant.create"),
    ]
    assert rows[0]["prev_hash"] == rows[1]["hash"]
    assert [
        row["seq"] for row in command.json("audit", "list", "--tenant", name, "--limit", 1)
    ] == [3]
    earlier = command.json("audit", "list", "--tenant", name, "--before", 3)
    assert [row["seq"] for row in earlier] == [2, 1]
    assert "key.create" in command("audit", "list", "--tenant", name)
    assert not command.json("audit", "list", "--tenant", name, "--before", 1)
    past = command("audit", "list", "--tenant", name, "--before", 1 << 63, status=2)
    assert "--before" in past


def test_a_sound_audit_is_said_to_be(command, name):
    report = command.json("audit", "verify", "--tenant", name)
    assert (report["holds"], report["rows"], report["broken"]) == (True, 3, [])
    again = command.json("audit", "verify", "--tenant", name, "--anchor", report["head"])
    assert (again["holds"], again["anchors"]) == (True, 1)
    assert "holds" in command("audit", "verify", "--tenant", name)


@pytest.fixture
def publisher(home, name, monkeypatch):
    """What signs for the tenant, whose root is trusted in this home."""
    monkeypatch.delenv("STEERSMAN_REGISTRY", raising=False)
    made = Publisher(open_place(str(home / "registry" / name)), Keys(home / "keys" / name))
    trusted = home / "trust" / name / "root.json"
    trusted.parent.mkdir(parents=True)
    trusted.write_bytes(made.create(name, "a long passphrase"))
    return made


def test_the_signed_head_finds_what_is_missing_at_the_end(command, name, database, publisher):
    assert command.json("audit", "verify", "--tenant", name)["signed"] is None
    seq, head = command.json("audit", "verify", "--tenant", name)["head"].split(":")
    publisher.anchor(int(seq), bytes.fromhex(head))
    report = command.json("audit", "verify", "--tenant", name)
    assert (report["holds"], report["signed"], report["anchors"]) == (True, f"{seq}:{head}", 1)
    tamper(database, name, "DELETE FROM audit WHERE tenant = $1 AND seq = 3")
    report = command.json("audit", "verify", "--tenant", name, status=1)
    assert report["broken"] == ["row 3 has an anchor but is missing; the chain ends at 2"]
    assert command.json("audit", "verify", "--tenant", name, "--without-registry")["holds"]
    # A registry that is gone does not hide it: what verified lately still counts.
    shutil.rmtree(command.home / "registry" / name)
    report = command.json("audit", "verify", "--tenant", name, status=1)
    assert report["signed"] == f"{seq}:{head}"


def test_a_head_that_may_be_outdated_does_not_pass_for_the_signed_one(command, name, publisher):
    """Who holds the registry back may have removed what was signed since."""
    seq, head = command.json("audit", "verify", "--tenant", name)["head"].split(":")
    publisher.anchor(int(seq), bytes.fromhex(head))
    report = command.json("audit", "verify", "--tenant", name)
    assert (report["holds"], report["online"]) == (True, True)
    shutil.rmtree(command.home / "registry" / name)
    later = command.json("audit", "verify", "--tenant", name, status=1)
    assert (later["holds"], later["online"], later["signed_at"]) == (
        True,
        False,
        report["signed_at"],
    )
    said = command("audit", "verify", "--tenant", name, status=1)
    assert "the registry cannot be verified now" in said
    assert "rows removed since then are not detected" in said
    assert "holds" in command("audit", "verify", "--tenant", name, "--without-registry")


def test_after_a_restore_the_head_is_accepted_and_that_is_written_down(command, name, publisher):
    why = ("audit", "accept", "--tenant", name, "--reason", "restored the backup of Monday")
    said = command(*why, status=1)
    assert "nothing to accept" in said
    publisher.anchor(99, bytes(32))
    assert not command.json("audit", "verify", "--tenant", name, status=1)["holds"]
    done = command.json(*why)
    report = command.json("audit", "verify", "--tenant", name)
    assert (report["holds"], report["signed"], report["head"]) == (True, *[done["signed"]] * 2)
    entry = command.json("audit", "list", "--tenant", name, "--limit", 1)[0]
    assert entry["action"] == "audit.accept"
    assert entry["detail"] == {
        "reason": "restored the backup of Monday",
        "signed": f"99:{bytes(32).hex()}",
    }
    assert "nothing to accept" in command(*why, status=1)


def test_an_audit_that_is_broken_in_itself_is_not_accepted(command, name, database, publisher):
    publisher.anchor(99, bytes(32))
    tamper(database, name, "UPDATE audit SET actor = 'eve' WHERE tenant = $1 AND seq = 2")
    said = command("audit", "accept", "--tenant", name, "--reason", "restored", status=1)
    assert "a restore cannot cause this, so nothing was signed" in said
    assert publisher.anchored() == (99, bytes(32))


def test_a_registry_that_does_not_verify_is_a_failure(command, name, publisher):
    for file in (command.home / "registry" / name / "metadata").glob("*timestamp*"):
        file.write_bytes(b"{}")
    said = command("audit", "verify", "--tenant", name, status=1)
    assert "Error: " in said
    assert "holds" not in said


def test_a_changed_row_ends_with_status_1(command, name, database):
    tamper(database, name, "UPDATE audit SET actor = 'eve' WHERE tenant = $1 AND seq = 2")
    report = command.json("audit", "verify", "--tenant", name, status=1)
    assert report["broken"] == ["row 2 was changed: its hash differs"]
    assert "row 2 was changed" in command("audit", "verify", "--tenant", name, status=1)


def test_rows_missing_at_the_end_are_found_by_an_anchor(command, name, database):
    head = command.json("audit", "verify", "--tenant", name)["head"]
    tamper(database, name, "DELETE FROM audit WHERE tenant = $1 AND seq = 3")
    assert command.json("audit", "verify", "--tenant", name)["holds"]
    report = command.json("audit", "verify", "--tenant", name, "--anchor", head, status=1)
    assert report["broken"] == ["row 3 has an anchor but is missing; the chain ends at 2"]


@pytest.mark.parametrize("anchor", ["3", "0:" + "00" * 32, "x:" + "00" * 32, "3:00", "3:zz"])
def test_what_is_no_anchor_is_bad_usage(command, name, anchor):
    said = command("audit", "verify", "--tenant", name, "--anchor", anchor, status=2)
    assert "64 hexadecimal digits" in said


def test_of_an_unknown_tenant_nothing_is_told(command):
    assert "tenant not found" in command("audit", "verify", "--tenant", "nobody", status=1)
