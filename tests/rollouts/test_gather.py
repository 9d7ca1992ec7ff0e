"""What is read of a rollout: closed windows alone, each decision once, late commits too."""

from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID

import numpy as np

from steersman.db.decisions import log_decisions
from steersman.db.erasure import erase
from steersman.db.packed_events import log_events
from steersman.rollouts.commands import act
from steersman.rollouts.forecast import forecast, traffic_of
from steersman.rollouts.plan import plan_of
from steersman.rollouts.unit_outcomes import ReadPosition, last_decision_at, observe, shadowed
from steersman.rollouts.units import position
from steersman.spec.loader import loads
from tests.learning.world import decided, happened
from tests.rollouts.world import document, world


def moment(seconds):
    return datetime.fromtimestamp(seconds, UTC)


async def at_canary(database, tenant, **options):
    w = await world(database, tenant.id, log=0, **options)
    begun = await w.start(force="a test")
    row = await act(
        database, tenant.id, begun.id, "promote", actor="a", reason="r", clock=w.clock.wall,
        force=True,
    )  # fmt: skip
    return w, row


def unit_of(row, arm, rng):
    """Return a unit whose place is an arm's at canary."""
    while True:
        unit = f"x{rng.integers(1 << 40)}"
        h = position(row.salt, unit)
        if (h < 0.1) if arm == "candidate" else (h >= 0.9):
            return unit


async def write(w, rows, events):
    connection = await w.database.connect("app")
    await log_decisions(connection, rows)
    if events:
        await log_events(connection, events)
    await connection.close()


async def read(w, row, gathering, closed):
    point = await w.point()
    return await w.read(lambda it: observe(it, row, point, gathering, moment(closed)))


async def test_closed_windows_alone_each_once_and_late_commits_too(database, tenant):
    w, row = await at_canary(database, tenant)
    rng = np.random.default_rng(0)
    label = {"rollout": str(row.id), "stage": "canary"}
    start = w.clock.now

    def made(place, at, **changes):
        unit = unit_of(row, place, rng)
        return decided(w.row, rng, at=at, unit=unit, **{**label, "arm": place, **changes})

    first, second = made("candidate", start), made("control", start + 0.5)
    late = made("candidate", start + 0.1)
    fallen = made("candidate", start + 0.2, arm="control")
    wrong = made("control", start + 0.3, arm="candidate")
    aside = made("control", start + 0.3, rollout=None, stage="live")
    degraded = made("control", start + 0.4, degraded=True, p_kind="fallback")
    inside, outside = (
        happened(first, {"success": value, "error": value}, at=moment(at), received_at=moment(at))
        for value, at in ((1.0, start + 0.9), (0.0, start + 1.1))
    )
    other = happened(second, {"success": 1.0}, at=second.at, received_at=second.at)
    await write(w, [first, second, fallen, wrong, aside, degraded], [inside, outside, other])

    gathering = ReadPosition()
    assert (await read(w, row, gathering, start + 0.9)).observed == []
    found = await read(w, row, gathering, start + 1.2)
    assert [(one.unit, one.arm, one.failed) for one in found.observed] == [
        (first.unit, "candidate", False),
        (fallen.unit, "candidate", True),
    ]
    assert found.observed[0].reward == 1.0
    assert found.observed[0].outcomes == {"error": 1.0}, "those that a guardrail reads"
    assert found.observed[1].reward is None
    assert found.misplaced == 0
    await write(w, [late], [])  # committed after later ones were read
    found = await read(w, row, gathering, start + 2.0)
    assert sorted(one.unit for one in found.observed) == sorted(
        [late.unit, second.unit, degraded.unit]
    )
    assert found.misplaced == 1
    assert [one.failed for one in found.observed if one.unit == degraded.unit] == [True]
    assert (await read(w, row, gathering, start + 3.0)).observed == []
    again = await read(w, row, ReadPosition(), start + 3.0)
    assert (len(again.observed), again.misplaced) == (5, 1)
    assert await w.read(lambda it: last_decision_at(it, row, None)) == second.at


async def test_one_late_commit_does_not_hide_another(database, tenant):
    w, row = await at_canary(database, tenant)
    rng = np.random.default_rng(0)
    label = {"rollout": str(row.id), "stage": "canary", "arm": "candidate"}
    start = w.clock.now

    def made(at):
        return decided(w.row, rng, at=start + at, unit=unit_of(row, "candidate", rng), **label)

    young, late, later = made(50.0), made(-7.0), made(10.0)  # windows are a second long
    gathering, found = ReadPosition(), []
    for one, closed in ((young, 52.0), (late, 53.0), (None, 57.0), (later, 58.0)):
        if one is not None:
            await write(w, [one], [])
        found += (await read(w, row, gathering, start + closed)).observed
    assert [one.unit for one in found] == [young.unit, late.unit, later.unit]


async def test_what_was_erased_or_done_otherwise_is_left_out(database, tenant):
    w, row = await at_canary(database, tenant)
    rng = np.random.default_rng(0)
    label = {"rollout": str(row.id), "stage": "canary", "arm": "candidate"}
    rows = [
        decided(w.row, rng, at=w.clock.now, unit=unit_of(row, "candidate", rng), **label)
        for _ in range(3)
    ]
    did = happened(rows[0], None, at=rows[0].at, received_at=rows[0].at, action_taken="middle")
    await write(w, rows, [did])
    await erase(database, tenant.id, reason="asked", actor="a", decisions=[rows[1].id])
    found = await read(w, row, ReadPosition(), w.clock.now + 5)
    assert [one.unit for one in found.observed] == [rows[2].unit]


async def test_at_live_the_holdback_and_its_like_are_compared(database, tenant):
    w, row = await at_canary(database, tenant)
    for _ in range(3):
        row = await act(
            database, tenant.id, row.id, "promote", actor="a", reason="r", clock=w.clock.wall,
            force=True,
        )  # fmt: skip
    assert row.stage == "live"
    await w.arrive(row, 600)
    found = await read(w, row, ReadPosition(), w.clock.now + 5)
    by_arm = {
        arm: sum(one.arm == arm for one in found.observed) for arm in ("candidate", "control")
    }
    assert 35 < by_arm["candidate"] < 90
    assert 35 < by_arm["control"] < 90
    assert found.misplaced == 0


async def test_what_was_shadowed_is_returned_once(database, tenant):
    w = await world(database, tenant.id, log=0)
    begun = await w.start()
    await w.arrive(begun, 30)
    gathering = ReadPosition()
    until = moment(w.clock.now + 1)
    parts = [
        await w.read(lambda it: shadowed(it, begun, gathering, until, limit=20)) for _ in range(3)
    ]
    assert [len(part) for part in parts] == [20, 10, 0]
    assert len({one.id for part in parts for one in part}) == 30


async def test_pages_of_a_long_log_follow_each_other(database, tenant, monkeypatch):
    monkeypatch.setattr("steersman.rollouts.unit_outcomes._PAGE", 7)
    monkeypatch.setattr("steersman.rollouts.unit_outcomes._MOST_PAGES", 2)
    w, row = await at_canary(database, tenant)
    await w.arrive(row, 300)
    gathering, units, behind = ReadPosition(), [], True
    while behind:
        found = await read(w, row, gathering, w.clock.now + 5)
        units += [one.unit for one in found.observed]
        behind = found.behind
        assert len(found.observed) <= 14
    assert len(units) == len(set(units))
    whole = await read(w, row, ReadPosition(), w.clock.now + 5)
    assert whole.behind
    assert len(units) > 40


async def test_traffic_and_spread_are_those_of_the_log(database, tenant):
    w = await world(database, tenant.id, log=200)
    point = await w.point()
    found = await w.read(lambda it: traffic_of(it, point, now=w.clock.now))
    assert (found.units, found.decisions) == (200, 200)
    assert 0.3 < found.sd < 0.55
    assert found.units_per_day == 200 / found.days
    nothing = await w.read(lambda it: traffic_of(it, point, now=w.clock.now + 90 * 86_400))
    assert (nothing.units, nothing.sd, nothing.units_per_day) == (0, None, 0.0)


async def test_the_spread_of_zeros_and_ones_is_one_that_a_forecast_takes():
    """Of half zeros and half ones, n - 1 below makes it more than any number in 0 to 1 has."""
    rewards = np.repeat([0.0, 1.0], 500)

    class Told:
        async def fetchrow(self, *_):
            first = moment(0.0)
            sd, mean = float(rewards.std(ddof=1)), float(rewards.mean())
            return {"decisions": 1000, "units": 1000, "first": first, "sd": sd, "mean": mean}

    point = SimpleNamespace(tenant=UUID(int=0), skill="search", point="depth")
    found = await traffic_of(Told(), point, now=86_400.0)
    assert found.sd == 0.5
    plan = plan_of(loads(document()), salt="s")
    assert forecast(plan, found.sd, 0.03, found.units_per_day).units > 1000
