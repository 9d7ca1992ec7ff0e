"""``steersman rollout``: start, plan, act, explain, history, and exit status."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from steersman.cli.signing_keys import publisher_of, registry_location
from steersman.db.incidents import open_incident
from steersman.db.points import points_of
from steersman.db.tenants import find_tenant
from steersman.platform.postgres.database import as_tenant
from steersman.registry.bucket import open_place
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from tests.kept import run

ROUTE = Path("configs/assistant/route.yaml")


def _ready(database, home, name):
    """Give a tenant keys and a repository, and publish its point."""

    async def make():
        tenant = await find_tenant(database, name)
        connection = await database.connect("app")
        async with as_tenant(connection, tenant.id):
            (row,) = await points_of(connection, tenant.id)
        await connection.close()
        publisher = Publisher(
            open_place(f"{registry_location(home)}/{name}"), Keys(home / "keys" / name)
        )
        root = publisher.create(name, "correct horse battery staple")
        trust = home / "trust" / name
        trust.mkdir(parents=True)
        (trust / "root.json").write_bytes(root)
        made = await publish(database, row, publisher_of(home, name), Reason(actor="test"))
        return made.version

    return run(make())


@pytest.fixture
def candidate(command, database, home):
    """A tenant with one declared point, and a published version of it."""
    name = f"r-{uuid4().hex[:10]}"
    command("tenant", "create", name)
    command("tenant", "declare", name, ROUTE)
    return name, _ready(database, home, name)


def test_a_rollout_from_start_to_rollback(command, candidate):
    name, version = candidate
    of = ("--tenant", name)
    begun = command.json(
        "rollout", "start", "assistant", "route", version, "--reason", "a week", *of
    )
    assert (begun["status"], begun["stage"], begun["candidate"]) == ("running", "shadow", version)
    (listed,) = command.json("rollout", "status", *of)
    assert listed["id"] == begun["id"]
    assert version in command("rollout", "status", *of)
    for vague in ("", begun["id"][:3]):  # a variable that is not set must not pause anything
        said = command("rollout", "pause", vague, "--reason", "lunch", *of, status=1)
        assert "too short" in said
    short = begun["id"][:13]
    said = command("rollout", "explain", "assistant/route", *of)
    assert "pause, promote, rollback, freeze" in said
    paused = command.json("rollout", "pause", short, "--reason", "lunch", *of)
    assert paused["status"] == "paused"
    refused = command("rollout", "promote", short, "--reason", "hurry", *of, status=1)
    assert "allowed now: resume" in refused
    command("rollout", "resume", short, "--reason", "back", *of)
    refused = command("rollout", "promote", short, "--reason", "hurry", *of, status=1)
    assert "not enough evidence" in refused
    forced = command.json("rollout", "promote", short, "--reason", "a drill", "--force", *of)
    assert forced["stage"] == "canary"
    frozen = command.json("rollout", "freeze", short, "--reason", "look", *of)
    assert frozen["status"] == "paused"
    shown = command.json("rollout", "explain", short, *of)
    assert (shown["frozen"], shown["legal_actions"]) == (True, ["resume", "rollback"])
    back = command.json("rollout", "rollback", short, "--reason", "enough", *of)
    assert back["status"] == "aborted"
    point = ("assistant", "route")
    said = command("snapshot", "unpin", *point, "--reason", "hurry", *of, status=1)
    assert f"steersman rollout resume {begun['id']}" in " ".join(said.split())
    command("rollout", "resume", short, "--reason", "looked", *of)
    command("snapshot", "unpin", *point, "--reason", "nothing to do", *of)
    acts = [row["action"] for row in command.json("audit", "list", *of)]
    assert ("rollout.resume" in acts, "point.unpin" in acts) == (True, False)
    assert command.json("rollout", "history", short, *of) == []
    assert "no verdicts yet" in command("rollout", "history", short, *of)
    assert command.json("rollout", "status", *of) == []
    assert len(command.json("rollout", "status", "--all", *of)) == 1


def test_what_is_under_way_is_found_however_many_came_after_it(command, candidate, database):
    name, version = candidate
    of = ("--tenant", name)
    begun = command.json("rollout", "start", "assistant", "route", version, *of)

    async def end_others():
        tenant = await find_tenant(database, name)
        connection = await database.connect("worker")
        async with as_tenant(connection, tenant.id):
            await connection.execute(
                "INSERT INTO rollout SELECT (jsonb_populate_record(r, jsonb_build_object("
                "'id', 'ffffffff-0000-7000-8000-' || lpad(to_hex(i), 12, '0'), "
                "'status', 'aborted', 'ended_at', now()))).* "
                "FROM rollout AS r, generate_series(1, 120) AS i WHERE r.id = $1::uuid",
                begun["id"],
            )
        await connection.close()

    run(end_others())
    (listed,) = command.json("rollout", "status", *of)
    assert listed["id"] == begun["id"]
    every = command.json("rollout", "status", "--all", *of)
    assert len(every) == 121
    assert every[-1]["id"] == begun["id"]
    assert [row["id"] for row in every] == sorted((row["id"] for row in every), reverse=True)


def test_what_cannot_be_has_status_one_and_what_is_no_command_two(command, candidate):
    name, version = candidate
    of = ("--tenant", name)
    assert "0.9.9" in command("rollout", "start", "assistant", "route", "0.9.9", *of, status=1)
    command("rollout", "start", "assistant", "route", version, "--set", "alpha=7", *of, status=1)
    command("rollout", "start", "assistant", "route", version, "--set", "alpha", *of, status=2)
    command("rollout", "pause", "nothing", "--reason", "r", *of, status=1)
    command("rollout", "pause", "nothing", *of, status=2)  # no reason
    broken = "stages=[{name: canary, share: 0.05}]"
    said = command(
        "rollout", "start", "assistant", "route", version, "--set", broken, *of, status=2
    )
    assert "not valid JSON" in said
    command("rollout", "explain", "assistant/route", *of, status=1)
    command("rollout", "plan", "assistant", "route", "--effect", "0", *of, status=2)
    said = command("rollout", "plan", "assistant", "route", *of, status=1)
    assert "--sd" in said


def test_a_plan_tells_units_and_days(command, candidate):
    name, _ = candidate
    arguments = ("rollout", "plan", "assistant", "route", "--sd", 0.25, "--units-per-day", 2000)
    of = ("--tenant", name)
    found = command.json(*arguments, "--effect", 0.03, *of)
    assert [stage["name"] for stage in found["stages"]][::3] == ["shadow", "live"]
    assert 1000 < found["units"] < 5000
    larger = command.json(*arguments, "--effect", 0.06, *of)
    assert larger["units"] <= found["units"]
    told = command(*arguments, *of)
    assert "units per arm" in told
    assert "canary" in told


@pytest.mark.slow
def test_the_controller_runs_judges_and_stops(command, database, candidate):
    name, version = candidate
    of = ("--tenant", name)
    begun = command.json("rollout", "start", "assistant", "route", version, *of)
    process = subprocess.Popen(
        [sys.executable, "-m", "steersman.cli", "rollout", "run", "--home", command.home],
        env=os.environ | command.environment | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 60
        while not (rows := command.json("rollout", "history", begun["id"], "--recompute", *of)):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert rows[0]["verdict"] in {"hold", "not_enough_data"}  # the log is asked beside the turns
    assert rows[0]["same"] is True
    assert b"Traceback" not in said, said
    shown = command("rollout", "history", begun["id"], "--recompute", *of)
    assert rows[0]["verdict"] in shown
    explained = command("rollout", "explain", begun["id"], *of)
    assert "decisions in shadow" in explained
    _forge(database, name, begun["id"])
    said = command("rollout", "history", begun["id"], "--recompute", *of, status=1)
    assert "differ from their recomputation" in said


def _forge(database, name, rollout):
    """Change a stored verdict, as only who owns the table can."""

    async def change():
        tenant = await find_tenant(database, name)
        connection = await database.connect("owner")
        async with as_tenant(connection, tenant.id):
            await connection.execute(
                "UPDATE verdict SET verdict = 'promote' WHERE rollout = $1 AND seq = 1", rollout
            )
        await connection.close()

    run(change())


def test_what_is_printed_is_json(command, candidate):
    name, _ = candidate
    assert json.loads(command("rollout", "status", "--json", "--tenant", name)) == []


def test_incidents_are_listed_and_closed(command, database, candidate):
    name, _ = candidate
    of = ("--tenant", name)
    assert "no open incident" in command("rollout", "incidents", *of)

    async def open_one():
        tenant = await find_tenant(database, name)
        connection = await database.connect("worker")
        async with as_tenant(connection, tenant.id):
            now = datetime.now(UTC)
            await open_incident(
                connection, tenant.id, kind="drill", summary="a drill", detail={}, at=now
            )
        await connection.close()

    run(open_one())
    (shown,) = command.json("rollout", "incidents", *of)
    assert (shown["kind"], shown["closed_at"]) == ("drill", None)
    closed = command.json("rollout", "close", shown["id"], "--reason", "it was one", *of)
    assert closed["closed_at"] is not None
    assert command.json("rollout", "incidents", *of) == []
    assert len(command.json("rollout", "incidents", "--all", *of)) == 1
    command("rollout", "close", uuid4(), "--reason", "r", *of, status=1)
