"""Administrative commands: tenants, keys, learning, backups."""

import json
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from steersman.db.tenants import find_tenant
from steersman.platform.postgres.database import as_tenant
from tests.clusters import execute, on
from tests.kept import run

CONFIGS = [Path("configs/assistant", f"{name}.yaml") for name in ("cache", "route", "tool")]


@pytest.fixture
def name(command):
    name = f"t-{uuid4().hex[:12]}"
    command("tenant", "create", name)
    return name


def test_a_tenant_declares_its_points_once(command, name):
    declared = command.json("tenant", "declare", name, *CONFIGS)
    assert [row["decision"] for row in declared] == ["cache", "route", "tool"]
    assert command.json("tenant", "declare", name, *CONFIGS) == declared
    assert command.json("tenant", "points", name) == declared
    assert "lin_ucb" in command("tenant", "points", name)
    assert name in [row["name"] for row in command.json("tenant", "list")]


def test_a_wrong_declaration_is_refused_with_its_line(command, name, tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text(CONFIGS[0].read_text().replace("floor: 0.01", "floor: 2"))
    said = command("tenant", "declare", name, file, status=1)
    assert "floor" in said
    assert "Traceback" not in said


def test_a_wrong_file_is_told_by_its_name_and_none_is_stored(command, name, tmp_path):
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"\xff" + CONFIGS[0].read_bytes())
    said = command("tenant", "declare", name, CONFIGS[1], file, status=1)
    assert "latin.yaml" in said
    assert "UTF-8" in said
    assert command.json("tenant", "points", name) == []
    marked = tmp_path / "marked.yaml"
    marked.write_bytes(b"\xef\xbb\xbf" + CONFIGS[0].read_bytes())
    assert command.json("tenant", "declare", name, marked)[0]["decision"] == "cache"


def test_a_point_that_cannot_be_served_lets_none_be_stored(command, name, tmp_path):
    file = tmp_path / "unfitted.yaml"
    file.write_text(
        "format: 1\nskill: search\ndecision: depth\ncontext: {fields: {words: {type: number}}}\n"
        "actions: {kind: choice, names: [a, b]}\npolicy: {algorithm: lin_ts}\nfloor: 0.1\n"
        "reward: {terms: {clicked: {weight: 1}}, window_s: 60}\nfallback: {otherwise: a}\n"
    )
    said = command("tenant", "declare", name, CONFIGS[0], file, status=1)
    assert "no statistics" in said
    assert command.json("tenant", "points", name) == []


def test_an_unknown_tenant_is_told_with_those_there_are(command):
    said = command("tenant", "points", "nobody", status=1)
    assert "tenant not found: 'nobody'" in said
    assert "exist: " in said  # the names follow; of many, only the first


def test_a_key_is_shown_once_rotated_and_revoked(command, name):
    made = command.json("key", "create", "app", "--tenant", name)
    assert made["key"].startswith(made["prefix"])
    assert made["scopes"] == ["decide", "events"]
    assert made["key"] not in command("key", "list", "--tenant", name)
    rotated = command.json("key", "rotate", made["prefix"], "--tenant", name, "--grace-s", 0)
    assert rotated["key"] != made["key"]
    revoked = command.json("key", "revoke", rotated["id"], "--tenant", name)
    assert revoked["revoked_at"] is not None
    listed = command.json("key", "list", "--tenant", name)
    assert [row["revoked_at"] is None for row in listed] == [False, False]


def test_a_key_of_ones_own_scopes_expires(command, name):
    made = command.json("key", "create", "x", "--tenant", name, "--scope", "read", "--days", 1)
    assert (made["role"], made["scopes"]) == ("custom", ["read"])
    assert made["expires_at"] > made["created_at"]


def test_an_unknown_key_is_refused(command, name):
    said = command("key", "revoke", "sk_nothing_", "--tenant", name, status=1)
    assert "existing keys: none" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("key", "create", "x", "--role", "king"),
        ("learn", "rebuild", "a", "b", "--until", "yesterday"),
        ("data", "retain", "--days", "0"),
        ("tenant", "erase", "x", "--reason", "y"),
        ("decide", "a", "b", "--context", "[1]"),
        ("events", "send", "telepathy"),
        ("up", "--port", "99999"),
        ("nonsense",),
    ],
)
def test_bad_usage_has_status_two(command, arguments):
    said = command(*arguments, status=2)
    assert "Usage" in said


def test_a_backup_holds_everything(command, name, tmp_path):
    file = tmp_path / "all.dump"
    done = command.json("data", "backup", file)
    assert file.stat().st_size == done["bytes"]
    said = command("data", "restore", file, status=1)  # there are tenants
    assert "tenants" in said


@pytest.fixture
def elsewhere(command, database):
    """The command, over another database in which there is nothing yet."""
    name = f"restored_{uuid4().hex[:12]}"
    run(execute(database, f"CREATE DATABASE {name}"))
    yield replace(
        command, environment={**command.environment, "DATABASE_URL": on(database, name).url}
    )
    run(execute(database, f"DROP DATABASE {name} WITH (FORCE)"))


def test_a_backup_is_brought_back_elsewhere(command, name, elsewhere, tmp_path):
    command("tenant", "declare", name, *CONFIGS)
    command("key", "create", "app", "--tenant", name)
    command("data", "backup", tmp_path / "all.dump")
    done = elsewhere.json("data", "restore", tmp_path / "all.dump")
    assert done == {"restored": str(tmp_path / "all.dump"), "migrations_applied": []}
    for shown in (("tenant", "points", name), ("key", "list", "--tenant", name)):
        assert elsewhere.json(*shown) == command.json(*shown) != []
    assert elsewhere.json("audit", "verify", "--tenant", name)["holds"] is True
    assert "--replace" in elsewhere("data", "restore", tmp_path / "all.dump", status=1)
    elsewhere("data", "restore", tmp_path / "all.dump", "--replace")


def test_learning_of_an_unknown_point_is_refused(command, name):
    assert "tenant points" in command("learn", "rebuild", "a", "b", "--tenant", name, status=1)
    assert "tenant points" in command("learn", "verify", "a", "--tenant", name, status=1)
    assert command.json("learn", "verify", "--tenant", name) == []


def test_a_log_is_imported_once(command, name, tmp_path):
    examples = Path("examples/import")
    command("tenant", "declare", name, examples / "search_depth.yaml")
    arguments = (
        *("data", "import", examples / "searches.jsonl", "--tenant", name),
        *("--mapping", examples / "searches_jsonl.yaml"),
    )
    first, second = command.json(*arguments), command.json(*arguments)
    assert first["stored"] > 0
    assert (second["stored"], second["already"]) == (0, first["stored"])
    broken = tmp_path / "broken.jsonl"
    broken.write_text((examples / "searches.jsonl").read_text() + "{no json\n")
    said = command(
        *("data", "import", broken, "--tenant", name, "--mapping"),
        examples / "searches_jsonl.yaml",
        status=1,
    )
    assert "line " in said
    rows = command.json("data", "query", "SELECT count(*) AS n FROM decision", "--tenant", name)
    assert rows == [{"n": first["stored"]}]


def test_compaction_and_queries_say_the_same(command, name):
    command("tenant", "declare", name, Path("examples/import/search_depth.yaml"))
    command(
        *("data", "import", "examples/import/searches.jsonl", "--tenant", name),
        *("--mapping", "examples/import/searches_jsonl.yaml"),
    )
    sql = "SELECT action, count(*) AS n FROM decision GROUP BY action ORDER BY action"
    hot = command.json("data", "query", sql, "--tenant", name)
    done = command.json("data", "compact", "--tenant", name, "--until", "2100-01-01")
    assert {file["dataset"] for file in done["written"]} >= {"decision", "event"}
    assert (
        command.json("data", "compact", "--tenant", name, "--until", "2100-01-01")["written"] == []
    )
    assert command.json("data", "query", sql, "--tenant", name) == hot
    as_csv = command("data", "query", sql, "--tenant", name, "--csv").splitlines()
    assert as_csv[0] == "action,n"
    assert len(as_csv) == len(hot) + 1
    rows = command.json("data", "query", "SELECT 1 AS a, 2 AS a, 3 AS a_1", "--tenant", name)
    assert rows == [{"a": 1, "a_2": 2, "a_1": 3}]  # neither hides the other
    assert "SELECT" in command("data", "query", "DROP TABLE decision", "--tenant", name, status=1)


def test_retention_says_what_waits(command):
    done = command.json("data", "retain", "--days", 30)
    assert json.dumps(done["dropped"]) == "[]"


@pytest.fixture
def unreadable(command, database, name):
    """A tenant of three points, of which `cache` was declared as this version cannot read."""
    command("tenant", "declare", name, *CONFIGS)
    run(stored(database, name, "document || 'sails: 3'"))
    yield name
    run(stored(database, name, "replace(document, 'sails: 3', '')"))


async def stored(database, name, text):
    tenant = await find_tenant(database, name)
    connection = await database.connect("owner")
    async with as_tenant(connection, tenant.id):
        await connection.execute(f"UPDATE spec SET document = {text} WHERE point = 'cache'")
    await connection.close()


def test_a_point_that_cannot_be_read_is_told_with_what_to_do(command, unreadable):
    shown = command.json("tenant", "points", unreadable)
    told = {row["decision"]: row for row in shown}
    assert [row.get("problem") is None for row in shown] == [True, True, False]
    assert "sails" in told["cache"]["problem"]
    assert "steersman tenant declare" in command("tenant", "points", unreadable)
    (found,) = (row for row in command.json("doctor") if row["what"] == "declarations")
    assert (found["verdict"], unreadable in found["found"]) == ("warn", True)
    assert "sails" in command("learn", "verify", "--tenant", unreadable, status=1)
    assert "sails" in command(
        "learn", "rebuild", "assistant", "cache", "--tenant", unreadable, status=1
    )


@pytest.fixture
def otherwise(command, database, name):
    """A tenant of three points, of which `tool` was encoded otherwise when it was declared."""
    command("tenant", "declare", name, *CONFIGS)
    run(encoded_otherwise(database, name))
    yield name
    command("tenant", "declare", name, *CONFIGS)


async def encoded_otherwise(database, name):
    tenant = await find_tenant(database, name)
    connection = await database.connect("owner")
    async with as_tenant(connection, tenant.id):
        await connection.execute(
            "UPDATE decision_point SET feature_hash = sha256('other') WHERE point = 'tool'"
        )
    await connection.close()


def test_a_point_that_is_encoded_otherwise_is_told_with_what_to_do(command, otherwise):
    told = {row["decision"]: row for row in command.json("tenant", "points", otherwise)}
    assert [row for row in sorted(told) if "problem" in told[row]] == ["tool"]
    assert "steersman learn rebuild" in told["tool"]["problem"]
    assert "another context encoding" in command("tenant", "points", otherwise)
    (found,) = (row for row in command.json("doctor") if row["what"] == "declarations")
    assert (found["verdict"], "assistant/tool" in found["found"]) == ("warn", True)
    command("tenant", "declare", otherwise, *CONFIGS)
    assert all("problem" not in row for row in command.json("tenant", "points", otherwise))


def test_the_points_beside_one_that_cannot_be_read_go_on(command, unreadable):
    assert command.json("learn", "verify", "assistant", "route", "--tenant", unreadable)
    done = command.json("learn", "rebuild", "assistant", "route", "--tenant", unreadable)
    assert done["snapshot"] == "0.2.0"
    planned = ("rollout", "plan", "assistant", "route", "--sd", "0.1", "--units-per-day", "1000")
    assert command.json(*planned, "--tenant", unreadable)
