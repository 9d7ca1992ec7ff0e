"""Errors by time: those told late, those of a time when nobody looked, and what a look reads."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import floor
from types import SimpleNamespace

from steersman.rollouts.commands import act
from steersman.rollouts.error_budget import stretches
from steersman.rollouts.error_counts import Tally
from steersman.rollouts.error_sources import StoreSource
from steersman.rollouts.plan import PlannedBudget, PlannedStage, RolloutPlan
from tests.learning.world import decided, happened, write
from tests.rollouts.world import world

HOUR = 3600.0
LENGTHS = stretches(PlannedBudget())


async def _begun(database, tenant):
    """Return a world, and a canary that began twelve hours ago."""
    w = await world(database, tenant.id)
    begun = await w.start()
    row = await act(
        database, tenant.id, begun.id, "promote", actor="a", reason="r", clock=w.clock.wall,
        force=True,
    )  # fmt: skip
    return w, replace(row, started_at=row.started_at - timedelta(hours=12))


async def _decide(w, row, at, n, *, told_later_s=0.0):
    """Let n units decide at a time; return the events that say that all of them failed."""
    plan, made = RolloutPlan.from_json(row.plan), []
    for _ in range(n):
        w.units += 1
        label, _ = w._label(row, plan, f"u{w.units}")
        made.append(decided(w.row, w.rng, at=at, unit=f"u{w.units}", p=1 / 3, **label))
    await write(w.database, made)
    told = datetime.fromtimestamp(at + told_later_s, UTC)
    return [happened(one, {"error": 1.0}, at=told, received_at=told) for one in made]


async def _watched(source, connection, row, begin, end, every_s=300.0):
    """Return what a source says in the end that is asked again and again."""
    for k in range(floor((end - begin) / every_s) + 1):
        at = datetime.fromtimestamp(begin + k * every_s, UTC)
        said = await source.read(connection, row, LENGTHS, at)
    return said


async def _anew(connection, row, now):
    """Return what a source says that has just begun, once it counted everything."""
    source, at = StoreSource(), datetime.fromtimestamp(now, UTC)
    for _ in range(20):
        said = await source.read(connection, row, LENGTHS, at)
    assert said.behind == ""
    return said


async def test_errors_told_hours_late_are_counted_as_if_one_began_to_look_now(database, tenant):
    w, row = await _begun(database, tenant)
    began = w.clock.now - 10 * HOUR
    events = await _decide(w, row, began, 100, told_later_s=2 * HOUR)
    source, connection = StoreSource(), await database.connect("worker")
    before = await _watched(source, connection, row, began, began + 2 * HOUR)
    assert [count.bad for count in before.control] == [0.0] * len(LENGTHS)
    await write(database, [], events)
    after = await _watched(source, connection, row, began + 2 * HOUR, began + 4 * HOUR)
    anew = await _anew(connection, row, began + 4 * HOUR)
    await connection.close()
    assert (after.candidate, after.control) == (anew.candidate, anew.control)
    assert after.control[-1].bad > 0


async def test_what_came_while_nobody_looked_is_counted(database, tenant):
    w, row = await _begun(database, tenant)
    began = w.clock.now - 10 * HOUR
    source, connection = StoreSource(), await database.connect("worker")
    await write(database, [], await _decide(w, row, began, 50))
    await _watched(source, connection, row, began, began + HOUR)
    await write(database, [], await _decide(w, row, began + 2 * HOUR, 100))
    said = await _watched(source, connection, row, began + 5 * HOUR, began + 6 * HOUR)
    anew = await _anew(connection, row, began + 6 * HOUR)
    await connection.close()
    assert said.behind == ""
    assert (said.candidate, said.control) == (anew.candidate, anew.control)


class _Busy:
    """A database with twenty decisions a second, which remembers how much of it is read."""

    def __init__(self):
        self.read = []

    async def fetch(self, _sql, *arguments):
        width, begin, end = arguments[7], arguments[10].timestamp(), arguments[11].timestamp()
        self.read.append(end - begin)
        return [(floor(begin / width), False, 0, round(20 * (end - begin)))]


def _busy_tally():
    began = 1.8e9
    plan = RolloutPlan("r", (PlannedStage("canary", 0.05, 1, 0.0),), ())
    row = SimpleNamespace(
        id="r", tenant="t", skill="s", point="p", salt="r",
        started_at=datetime.fromtimestamp(began, UTC), plan=plan.to_json(),
    )  # fmt: skip
    return Tally(row, LENGTHS), began


async def test_a_look_reads_little_however_long_the_longest_stretch_is():
    (tally, began), every, total, looks = _busy_tally(), 60.0, 0.0, 5 * 24 * 60
    for k in range(looks):
        busy = _Busy()
        await tally.look(busy, began + k * every)
        # The last hour, and ten minutes of each of three tiers, in whole buckets.
        assert sum(busy.read) <= HOUR + 3 * 600.0 + 10 * LENGTHS[0]
        total += sum(busy.read)
    assert total / (looks * every) < 32  # times that a decision is read in its three days


async def test_after_a_pause_it_is_told_what_is_not_known_yet():
    (tally, began), busy = _busy_tally(), _Busy()
    for k in range(120):
        await tally.look(busy, began + 60.0 * k)
    assert tally.counts(LENGTHS[3], began + 2 * HOUR) is not None
    now = began + 8 * HOUR
    busy.read.clear()
    await tally.look(busy, now)
    assert sum(busy.read) <= HOUR + 4 * 600.0 + 10 * LENGTHS[0]
    assert tally.counts(HOUR, now) is not None  # at once
    assert tally.counts(6 * HOUR, now) is None
    for _ in range(40):
        await tally.look(busy, now)
    assert tally.counts(6 * HOUR, now) is not None
    assert tally.counts(LENGTHS[-1], now) is not None
