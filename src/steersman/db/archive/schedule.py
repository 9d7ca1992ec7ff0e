"""Daily compaction schedule."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from typing import TYPE_CHECKING

from steersman.db.archive.compaction import compact
from steersman.errors import InputError, SteersmanError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from steersman.db.archive.compaction import Compacted
    from steersman.db.archive.destination import Destination
    from steersman.platform.postgres.database import Database

_LONGEST_WAIT_S = 60.0
_LONGEST_BETWEEN_S = 86_400.0
_RETRY_S = 600.0
_log = logging.getLogger(__name__)


async def run_daily(
    database: Database,
    destination: Destination,
    *,
    tenants: Sequence[UUID] | None = None,
    clock: Callable[[], float] = time.time,
    at: str = "02:30",
    stop: asyncio.Event | None = None,
    report: Callable[[Compacted | SteersmanError], None] | None = None,
) -> None:
    """Compact now and then every day at a given time, until stopped.

    A failed run is logged and retried after ten minutes. Several processes may run it; they take
    turns, and the second finds nothing to do.

    Args:
        tenants: tenants to compact; default: all, including future ones.
        clock: Unix time in seconds.
        at: time of day "HH:MM", in UTC.
        stop: event that ends the loop; default: cancellation only.

    Raises:
        InputError: ``at`` is not a time of day.
    """
    when = _time_of_day(at)
    stopped = stop or asyncio.Event()
    due = clock()
    while not await _reached(due, clock, stopped):
        today = datetime.fromtimestamp(clock(), UTC).date()
        outcome: Compacted | SteersmanError
        try:
            yesterday = today - timedelta(days=1)
            outcome = await compact(database, destination, tenants=tenants, until=yesterday)
            due = next_run(clock(), when)
        except SteersmanError as error:
            _log.exception("compaction failed; retrying in 10 min")
            outcome, due = error, clock() + _RETRY_S
        if report is not None:
            report(outcome)


def next_run(now: float, at: time_of_day) -> float:
    """Return the next run time after ``now``.

    Args:
        now: Unix time in seconds.
        at: time of day, in UTC.

    Returns:
        Unix time in seconds.

    >>> (next_run(0.0, time_of_day(2, 30)), next_run(9_000.0, time_of_day(2, 30)))
    (9000.0, 95400.0)
    """
    moment = datetime.fromtimestamp(now, UTC)
    run = datetime.combine(moment.date(), at, UTC)
    return (run if run > moment else run + timedelta(days=1)).timestamp()


async def _reached(due: float, clock: Callable[[], float], stopped: asyncio.Event) -> bool:
    """Wait until ``due``; return whether to stop instead."""
    # The next run is within a day, also if the clock is set back further.
    while not stopped.is_set() and 0 < (left := due - clock()) <= _LONGEST_BETWEEN_S:
        # In short steps: the clock may be set, and the machine may sleep.
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, _LONGEST_WAIT_S)):
                await stopped.wait()
    return stopped.is_set()


def _time_of_day(text: str) -> time_of_day:
    if re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text):
        return time_of_day.fromisoformat(text)
    message = f"invalid compaction time {text!r}; allowed is HH:MM from 00:00 to 23:59, in UTC"
    raise InputError(message)
