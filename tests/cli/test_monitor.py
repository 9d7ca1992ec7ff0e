"""``steersman monitor``: figures equal the stored rows, and frames fit the terminal."""

import asyncio
import hashlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from rich.console import Console

from steersman.cli.monitor_frame import draw
from steersman.cli.monitor_rollout import Comparison
from steersman.cli.monitor_service import ServiceView
from steersman.cli.monitor_values import Frame, TenantView
from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.derived_snapshots import hold_point
from steersman.db.incidents import open_incident
from steersman.db.packed_events import log_events
from steersman.db.rollout_transitions import claim_rollout, start_rollout
from steersman.db.snapshots import FrozenState, mark_published, reserve_snapshot
from steersman.db.tenants import create_tenant
from steersman.db.verdicts import add_verdict
from steersman.wire import new_id
from tests.db.rows import connected, decision, event
from tests.kept import run

POINT = """
format: 1
skill: search
decision: depth
context: {dim: 8, fields: {intent: {type: category}}}
actions: {kind: choice, names: [shallow, deep]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {rules: [], otherwise: shallow}
reward: {terms: {success: {weight: 1}}}
"""


COMPARED = {
    "name": "reward",
    "better": "higher",
    "margin": 0.02,
    "worse": "roll_back",
    "units": 60,
    "candidate": 0.71,
    "control": 0.68,
    "low": -0.01,
    "high": 0.07,
}


def an_id(ago_s):
    """Return an id of a decision that was made so many seconds ago."""
    moment = int(1000 * (time.time() - ago_s)) << 80
    return UUID(int=moment | new_id().int & ((1 << 80) - 1))


async def traffic(database, tenant, asked):
    """Log decisions, each with its outcomes and its reward."""
    rows = [decision(tenant, id=an_id(ago_s), **row) for ago_s, row, _, _ in asked]
    events = [
        event(tenant, row.id, outcomes=outcomes)
        for row, (_, _, outcomes, _) in zip(rows, asked, strict=True)
        if outcomes
    ]
    async with connected(database) as connection:
        await log_decisions(connection, rows)
        await log_events(connection, events)
    async with connected(database, "worker", tenant) as connection:
        await connection.execute("DELETE FROM work")  # the rewards are given here, not learned
        for row, (_, _, _, reward) in zip(rows, asked, strict=True):
            if reward is not None:
                await connection.execute(
                    "INSERT INTO reward (tenant, decision, revision, spec_hash, value, status, "
                    "terms, final) VALUES ($1, $2, 1, $3, $4, 'scored', '{}', true)",
                    *(tenant, row.id, bytes(32), reward),
                )


async def rollout(database, tenant, spec):
    """Start a rollout of a published snapshot; one verdict, one incident."""
    now = datetime.now(UTC)
    stages = [
        {"name": "shadow", "share": 0.0, "min_units": 100, "min_s": 60.0},
        {"name": "canary", "share": 0.05, "min_units": 200, "min_s": 3600.0},
        {"name": "live", "share": 0.95, "min_units": 0, "min_s": 0.0},
    ]
    point = (tenant, "search", "depth")
    frozen = FrozenState(
        line="0.1.0",
        line_seq=0,
        spec_hash=spec.spec_hash,
        feature_hash=spec.feature_hash,
        state=b"a state",
        algorithm="lin_ucb",
        samples=40,
    )
    async with connected(database, "worker", tenant) as connection:
        await hold_point(connection, point)
        await reserve_snapshot(connection, point, frozen, lambda _: "0.1.1")
        digest = hashlib.sha256(b"a state").hexdigest()
        await mark_published(connection, point, "0.1.1", {"sha256": digest})
        started = await start_rollout(
            connection,
            point,
            candidate="0.1.1",
            control="0.1.0",
            control_seq=0,
            stage="canary",
            share=0.05,
            salt="s",
            plan={"stages": stages},
            now=now - timedelta(minutes=5),
        )
        await connection.execute("UPDATE rollout SET step = 1 WHERE id = $1", started.id)
        row = await claim_rollout(connection, tenant, started.id, "host:1", idle_s=None)
        await add_verdict(
            connection,
            row,
            row.epoch,
            at=now,
            verdict="not_enough_data",
            acted="none",
            inputs={"compared": [COMPARED], "evidence": {"step_closed": [60, 64]}},
            reasons=["12 units are closed; the step asks for 200"],
        )
        await open_incident(
            connection,
            tenant,
            kind="rolled_back",
            summary="search/depth 0.0.9 went back",
            detail={},
            at=now - timedelta(hours=2),
        )
        return started


def decided(ago_s, reward=None, outcomes=None, **row):
    return ago_s, row, outcomes, reward


@pytest.fixture(scope="module")
def busy(database):
    """A tenant with traffic and no rollout."""

    async def make():
        tenant = await create_tenant(database, f"busy-{new_id().hex}", actor="test")
        await declare(database, tenant.id, POINT, actor="test")
        told = {"success": 1, "latency_ms": 100, "cost_usd": 0.001}
        await traffic(
            database,
            tenant.id,
            [
                decided(30, 0.8, told),
                decided(30, 0.4, told | {"success": 0, "latency_ms": 300}),
                decided(1000, None, {"error": 1}),
                decided(1000, degraded=True, p=1.0, p_kind="fallback"),
                decided(7200, 0.0, told | {"success": 0}),  # before the window
            ],
        )
        return tenant

    return run(make())


@pytest.fixture(scope="module")
def trying(database):
    """A tenant with a rollout."""

    async def make():
        tenant = await create_tenant(database, f"try-{new_id().hex}", actor="test")
        spec = await declare(database, tenant.id, POINT, actor="test")
        started = await rollout(database, tenant.id, spec)
        arms = {"control": 0.5, "candidate": 0.75}
        await traffic(
            database,
            tenant.id,
            [
                decided(20, reward, rollout=str(started.id), stage="canary", arm=arm)
                for arm, reward in arms.items()
            ],
        )
        return tenant

    return run(make())


def test_one_frame_as_json_is_what_the_store_holds(command, busy):
    frame = command.json("monitor", "--once", "--tenant", busy.name)
    (tenant,) = frame["tenants"]
    (point,) = tenant["points"]
    figures = point["figures"]
    assert figures == {
        "decisions": 4,
        "rewarded": 2,
        "reward": pytest.approx(0.6),
        "success": pytest.approx(0.5),
        "errors": pytest.approx(0.5),
        "p95_ms": pytest.approx(290.0),
        "cost_usd": pytest.approx(0.001),
    }
    assert (sum(point["traffic"]), point["traffic"][-1]) == (4, 2)
    assert [reward for reward in point["rewards"] if reward is not None] == [pytest.approx(0.6)]
    assert (point["snapshot"], point["update_seq"], point["pinned"]) == ("0.1.0", 0, False)
    assert (point["learner"], tenant["rollouts"], tenant["incidents"]) == (None, [], [])


def test_a_longer_window_counts_more(command, busy):
    frame = command.json("monitor", "--once", "--tenant", busy.name, "--window", "10000")
    assert frame["tenants"][0]["points"][0]["figures"]["decisions"] == 5


def test_too_many_decisions_shorten_the_window(command, busy, monkeypatch):
    monkeypatch.setattr("steersman.db.window_figures.MOST", 3)
    (tenant,) = command.json("monitor", "--once", "--tenant", busy.name)["tenants"]
    assert tenant["capped"]
    assert 1000 <= tenant["window_s"] < 1100
    (point,) = tenant["points"]
    assert point["figures"]["decisions"] == 3
    assert point["traffic"][0] == 1


def test_one_frame_for_people_without_a_rollout(command, busy):
    said = command("monitor", "--once", "--tenant", busy.name, "--url", "http://127.0.0.1:1")
    assert max(map(len, said.splitlines())) <= 100
    assert "http://127.0.0.1:1 does not answer" in said
    (line,) = [line for line in said.splitlines() if line.strip().startswith("depth")]
    assert line.split() == [
        *("depth", "0.1.0", "+0"),
        *line.split()[3:5],  # age
        *("14/h", line.split()[6], ".600", "50.0", "%", "50.0", "%", "290", "ms", "$1.00"),
        *("0.0", "s"),
    ]


def test_one_frame_shows_the_rollout_its_arms_its_verdict_and_the_incident(command, trying):
    (tenant,) = command.json("monitor", "--once", "--tenant", trying.name)["tenants"]
    (shown,) = tenant["rollouts"]
    assert (shown["stage"], shown["step"], shown["candidate"]) == ("canary", 1, "0.1.1")
    assert shown["arms"]["candidate"]["reward"] == 0.75
    assert shown["arms"]["control"]["decisions"] == 1
    assert shown["verdict"]["verdict"] == "not_enough_data"
    assert shown["controller"] == "host:1"
    assert tenant["incidents"][0]["kind"] == "rolled_back"
    said = command("monitor", "--once", "--tenant", trying.name)
    for words in (
        "search/depth running for 5 min",
        "✔ shadow ━━  canary 5 %  ── live 95 %",
        "this step 5 min of 1 h",
        "units per arm 60 of 200 ━━━━────────",
        ".680       .710  -.010 to +.070",
        "12 units are closed; the step asks for 200",
        "host:1 seen",
        "▲ rolled back  search/depth 0.0.9 went back  2 h ago",
    ):
        assert words in said


def test_all_tenants_are_shown_unless_one_is_named(command, busy, trying):
    shown = {view["tenant"] for view in command.json("monitor", "--once")["tenants"]}
    assert {busy.name, trying.name} <= shown


@pytest.fixture
def broken(database):
    """A tenant of two points, of which one was declared as no version can read."""

    async def make():
        tenant = await create_tenant(database, f"broken-{new_id().hex}", actor="test")
        for name in ("depth", "width"):
            await declare(database, tenant.id, POINT.replace("depth", name), actor="test")
        await traffic(database, tenant.id, [decided(30, point="width")])
        await spoil("document || 'sails: 3'", tenant)
        return tenant

    async def spoil(text, tenant):
        async with connected(database, "owner", tenant.id) as connection:
            await connection.execute(f"UPDATE spec SET document = {text} WHERE point = 'depth'")

    tenant = run(make())
    yield tenant
    run(spoil("replace(document, 'sails: 3', '')", tenant))


@pytest.mark.parametrize("width", [80, 160])
def test_a_declaration_that_cannot_be_read_is_said_and_all_others_are_shown(
    command, busy, broken, width, monkeypatch
):
    shown = {view["tenant"]: view for view in command.json("monitor", "--once")["tenants"]}
    assert shown[busy.name]["points"][0]["figures"]["decisions"] == 4
    assert shown[busy.name]["unreadable"] == []
    (point,), (lost,) = shown[broken.name]["points"], shown[broken.name]["unreadable"]
    assert (point["decision"], point["figures"]["decisions"]) == ("width", 1)
    assert (lost["skill"], lost["decision"], lost["snapshot"]) == ("search", "depth", "0.1.0")
    monkeypatch.setattr("steersman.cli.monitor._PIPE_COLUMNS", width)
    said = " ".join(command("monitor", "--once").split())
    assert re.search(r"width (lin_ucb )?0\.1\.0 \+0", said)
    for words in (busy.name, "▲ search/depth", "sails", "steersman tenant declare"):
        assert words in said


def test_a_tenant_that_is_not_there_is_refused(command):
    said = command("monitor", "--once", "--tenant", "nobody", status=1)
    assert "tenant not found: 'nobody'" in said


def test_an_interval_of_nothing_is_bad_usage(command):
    command("monitor", "--interval", "0", status=2)


def test_the_service_is_shown_where_it_is_reachable(asking):
    asking("decide", "assistant", "cache", "--context", "{}")
    service = asking.json("monitor", "--once")["service"]
    assert (service["state"], service["processes"], service["why"]) == ("NORMAL", 1, "")
    assert service["p95_ms"] > 0
    assert "● NORMAL" in asking("monitor", "--once")


# A shell lets what it starts in the background ignore SIGINT, and children inherit that.
INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from steersman.cli import main; main()"
)


def test_it_watches_in_a_terminal_until_it_is_interrupted(command, busy):
    main, terminal = pty.openpty()
    asked = ["monitor", "--tenant", busy.name, "--interval", "0.2"]
    watching = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *asked],
        env=os.environ | command.environment | {"TERM": "xterm-256color", "COLUMNS": "120"},
        stdout=terminal,
        stderr=subprocess.STDOUT,
    )
    os.close(terminal)
    said = b""
    try:
        while said.count(busy.name.encode()) < 3:  # three frames
            said += os.read(main, 65_536)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 0
    finally:
        watching.kill()
        watching.wait()
        os.close(main)
    assert b"\x1b[?1049h" in said  # on a screen of its own, so that nothing is left behind
    assert b"depth" in said


def test_frames_go_on_as_lines_of_json(command, busy):
    asked = ["monitor", "--tenant", busy.name, "--interval", "0.2", "--json"]
    watching = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *asked],
        env=os.environ | command.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        lines = [watching.stdout.readline() for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 0
    finally:
        watching.kill()
        watching.wait()
        watching.stdout.close()
    assert all(line.startswith('{"at": "') and line.endswith("}\n") for line in lines)
    assert lines[0] != lines[1]


def pictured(frame, width):
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    with console.file:
        console.print(draw(frame, width, footer="Ctrl-C to exit"))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 160, 220])
def test_every_width_is_kept_to_and_no_number_is_cut(command, trying, width):
    from steersman.cli.monitor import _Watching  # noqa: PLC0415
    from steersman.cli.monitor_service import Scraper  # noqa: PLC0415
    from steersman.platform.postgres.database import Database  # noqa: PLC0415

    async def look():
        watching = _Watching(
            Database(command.environment["DATABASE_URL"]),
            trying.name,
            3600.0,
            Scraper("http://127.0.0.1:1"),
        )
        try:
            return await watching.look()
        finally:
            await watching.close()

    lines = pictured(run(look()), width)
    assert max(map(len, lines)) <= width
    (row,) = [line for line in lines if line.strip().startswith("depth")]
    assert "…" not in row
    assert sum("▁" in line or "█" in line for line in lines) == (width >= 100)


def test_a_store_that_is_away_and_an_empty_one_are_said():
    nobody = Frame(datetime.now(UTC), 60.0, ServiceView("http://x", "LOCKDOWN", 1), ())
    assert any("no tenants yet" in line for line in pictured(nobody, 100))
    bare = TenantView("bare", (), (), (), 60.0, capped=False)
    away = Frame(datetime.now(UTC), 60.0, nobody.service, (bare,), "connection refused")
    lines = pictured(away, 100)
    assert any("database unavailable: connection refused" in line for line in lines)
    assert any("no decision points yet" in line for line in lines)


def test_the_interval_is_drawn_with_better_on_the_right():
    from steersman.cli.monitor_panel import _compared  # noqa: PLC0415

    def bar(**changes):
        values = {"control": 0.5, "candidate": 0.5, "units": 60, "low": 0.1, "high": 0.2}
        *_, line = _compared(Comparison("m", **(values | changes)), 25)
        return line

    assert bar().plain.index("●") > 12
    assert bar(better="lower").plain.index("●") < 12
    assert "red" in str(bar(better="lower").spans)
    assert "green" in str(bar().spans)
    assert bar(low=-0.1).plain[12] in "─●"
    assert bar(low=None, high=None).plain.strip() == "not enough units yet"


@pytest.mark.parametrize("columns", [100, 160])
def test_all_intervals_have_one_axis(columns):
    from steersman.cli.monitor_panel import _comparisons  # noqa: PLC0415

    found = [
        Comparison(f"m{n}", 0.5, 0.6, low, high, 60, better=better)
        for n, (low, high, better) in enumerate(
            [(0.1, 0.2, "higher"), (0.1, 0.2, "lower"), (-0.2, -0.01, "higher"), (0, 0.1, "lower")]
        )
    ]
    console = Console(width=columns)
    with console.capture() as captured:
        console.print(_comparisons(tuple(found), columns))
    head, *lines = captured.get().splitlines()
    axis = head.index("┊")
    assert [line[axis] for line in lines] == ["┊", "┊", "┊", "┤"]


def test_a_connection_that_is_lost_is_made_again(command, busy):
    from steersman.cli.monitor import _Watching  # noqa: PLC0415
    from steersman.cli.monitor_service import Scraper  # noqa: PLC0415
    from steersman.platform.postgres.database import Database  # noqa: PLC0415

    database = Database(command.environment["DATABASE_URL"])

    async def look():
        watching = _Watching(database, busy.name, 60.0, Scraper("http://127.0.0.1:1"))
        await watching.look()
        own = await watching._connection.fetchval("SELECT pg_backend_pid()")
        async with connected(database, None) as other:
            await other.execute("SELECT pg_terminate_backend($1)", own)
        async with asyncio.timeout(10):
            while not watching._connection.is_closed():  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)
        try:
            return await watching.look()
        finally:
            await watching.close()

    assert run(look()).tenants[0].tenant == busy.name
