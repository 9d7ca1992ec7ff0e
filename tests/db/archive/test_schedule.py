"""Daily compaction at start and by an injected clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from steersman.db.archive import compaction as schedule
from steersman.db.archive.compaction import CompactionResult, run_daily
from steersman.db.archive.destination import Directory
from steersman.db.archive.query import query
from steersman.errors import InputError, SteersmanError


async def until(condition):
    """Wait for another task."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError


async def test_it_runs_at_once_then_when_the_time_of_day_comes(past, cold, days, monkeypatch):
    monkeypatch.setattr(schedule, "_LONGEST_WAIT_S", 0.01)
    now = datetime(days[2].year, days[2].month, days[2].day, 1, 0, tzinfo=UTC)
    clock = [now.timestamp()]
    for day in days:
        await past.add(day, 2)
    done, stop = [], asyncio.Event()
    task = asyncio.create_task(
        run_daily(
            past.database,
            cold,
            tenants=[past.tenant],
            clock=lambda: clock[0],
            stop=stop,
            report=done.append,
        )
    )
    await until(lambda: len(done) == 1)
    assert {e.day for e in done[0].written} == set(days[:2])
    clock[0] += 3600  # two in the morning: nothing is due
    await asyncio.sleep(0.05)
    assert len(done) == 1
    clock[0] += 24 * 3600
    await until(lambda: len(done) == 2)
    assert {e.day for e in done[1].written} == {days[2]}
    stop.set()
    await task


async def test_a_clock_that_was_years_ahead_keeps_no_day_waiting(past, cold, days, monkeypatch):
    monkeypatch.setattr(schedule, "_LONGEST_WAIT_S", 0.01)
    right = datetime(days[2].year, days[2].month, days[2].day, 1, 0, tzinfo=UTC).timestamp()
    clock, done, stop = [right + 3650 * 86_400], [], asyncio.Event()
    options = {"tenants": [past.tenant], "stop": stop, "report": done.append}
    task = asyncio.create_task(run_daily(past.database, cold, clock=lambda: clock[0], **options))
    await until(lambda: len(done) == 1)
    await past.add(days[0], 2)
    clock[0] = right
    await until(lambda: len(done) == 2)
    assert {e.day for e in done[1].written} == {days[0]}
    stop.set()
    await task


async def test_a_failed_run_is_told_and_tried_again(past, tmp_path, days, monkeypatch):
    monkeypatch.setattr(schedule, "_LONGEST_WAIT_S", 0.01)
    await past.add(days[0], 2)
    (tmp_path / "cold").write_text("no directory")
    clock = [datetime(2026, 3, 5, tzinfo=UTC).timestamp()]
    done, stop = [], asyncio.Event()
    cold = Directory(tmp_path / "cold")
    task = asyncio.create_task(
        run_daily(
            past.database,
            cold,
            tenants=[past.tenant],
            clock=lambda: clock[0],
            stop=stop,
            report=done.append,
        )
    )
    await until(lambda: len(done) == 1)
    assert isinstance(done[0], SteersmanError)
    (tmp_path / "cold").unlink()
    clock[0] += 601
    await until(lambda: len(done) == 2)
    assert isinstance(done[1], CompactionResult)
    stop.set()
    await task
    table = await query(past.database, cold, past.tenant, "SELECT id FROM decision")
    assert len(table) == 2


@pytest.mark.parametrize("at", ["2:30", "24:00", "02:60", "0230", "", "noon"])
async def test_a_time_of_day_that_is_none_is_refused(past, cold, at):
    with pytest.raises(InputError, match="HH:MM"):
        await run_daily(past.database, cold, at=at)


def test_the_next_run_is_the_next_one_also_across_days():
    at = datetime(2026, 1, 1, 2, 30, tzinfo=UTC).time()
    day = datetime(2026, 12, 31, tzinfo=UTC)
    for hour, expected in ((0, 0), (2, 0), (3, 1), (23, 1)):
        found = schedule.next_run((day + timedelta(hours=hour)).timestamp(), at)
        assert found == (day + timedelta(days=expected, hours=2, minutes=30)).timestamp()
