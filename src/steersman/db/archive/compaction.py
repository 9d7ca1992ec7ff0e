"""Compaction: writes PostgreSQL rows to one Parquet file per tenant, dataset and day.

For each day: read rows and erasures from one snapshot, write a file in a scratch folder, publish
it, record it in ``cold_export``, commit, then remove older generations. A file counts only after
the commit, so a run can be killed at any point; the next run handles leftover files (see
`unnamed`). Runs are serialised.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.archive import ledger
from steersman.db.archive.datasets import DATASETS, DECISION
from steersman.db.archive.ledger import ErasureRecord, Export
from steersman.db.archive.parquet_files import (
    NotCovered,
    Writer,
    covering,
    digest_of,
    episodes,
    mentions,
    merged,
    read_keys,
    read_rows,
    united,
)
from steersman.errors import DataError, InputError, SteersmanError, StoreError
from steersman.platform.postgres.database import as_tenant, set_tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    from steersman.db.archive.datasets import Dataset, Row
    from steersman.db.archive.destination import Destination
    from steersman.platform.postgres.database import Database

_PART = re.compile(r"day=(\d{4}-\d\d-\d\d)/part-([1-9]\d{0,8})\.parquet")
_NOBODY = ErasureRecord(frozenset(), frozenset())


class OrphanFile(NamedTuple):
    """Unregistered file.

    Attributes:
        generation: generation in its name.
        path: relative to the destination.
    """

    generation: int
    path: str


def sorted_out(
    folder: str, paths: Iterable[str], current: Mapping[date, Export]
) -> tuple[list[str], dict[date, list[OrphanFile]]]:
    """Return the obsolete files, and by day the files whose rows to take in.

    >>> sorted_out("event/t", ["event/t/day=2026-03-01/part-7.parquet"], {})[1][date(2026, 3, 1)]
    [OrphanFile(generation=7, path='event/t/day=2026-03-01/part-7.parquet')]
    """
    there = set(paths)
    found: dict[date, list[OrphanFile]] = defaultdict(list)
    for path in there - {export.path for export in current.values()}:
        match = _PART.fullmatch(path.removeprefix(f"{folder}/"))
        day = _day(match[1]) if match else None
        if match and day:
            found[day].append(OrphanFile(int(match[2]), path))
    replaced: list[str] = []
    ahead: dict[date, list[OrphanFile]] = {}
    for day, files in found.items():
        export = current.get(day)
        newest = max(files).generation
        if export is None or (newest >= export.generation and export.path not in there):
            ahead[day] = sorted(files)  # lower generations too: their replacement is missing
        elif export.path in there:
            replaced += [file.path for file in files if file.generation < export.generation]
            if newest >= export.generation:
                ahead[day] = sorted(f for f in files if f.generation >= export.generation)
    return sorted(replaced), ahead


def check_whole(path: Path, dataset: Dataset, place: str) -> None:
    """Read an unregistered file completely, to reject a damaged one.

    Raises:
        DataError: the file cannot be read, or its rows are not in order.
    """
    last = None
    try:
        for row in read_rows(path, dataset, _NOBODY):
            key = dataset.key_of(row)
            if None in key or (last is not None and key <= last):
                raise ValueError(f"row {key} comes after {last}")  # noqa: TRY301 (told below)
            last = key
    except (DataError, KeyError, TypeError, ValueError) as error:
        message = (
            f"{place} is not registered in table cold_export, as after restoring an old backup, "
            f"and cannot be read: {error}; it may be the only copy of its rows: put an intact copy "
            "in its place, or move it out of the cold store to continue without it"
        )
        raise DataError(message) from error


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


_LOCK = 7_365_366
_PREFETCH = 1_000
_GOES_ON = "files already written stay valid; run it again for the rest"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Result of a compaction run.

    Attributes:
        written: new valid files, in commit order.
        unchanged: number of files that are still up to date.
        removed: number of removed obsolete files.
    """

    written: tuple[Export, ...]
    unchanged: int
    removed: int


async def compact(
    database: Database,
    destination: Destination,
    *,
    tenants: Sequence[UUID] | None = None,
    until: date | None = None,
) -> CompactionResult:
    """Write all days up to a given day to the cold store; a repeated run changes nothing.

    Late rows and erasures give a day a new generation. Rows that retention dropped from PostgreSQL
    are kept, and so are rows in files that the database does not know, as after restoring an old
    backup. A missing file is written again while PostgreSQL has all its rows.

    Args:
        tenants: tenants to compact; default: all.
        until: last day, in UTC; default: yesterday. Do not include unfinished days.

    Raises:
        DataError: pyarrow is not installed.
        StoreError: some days could not be written or files not removed, with reasons; the
            others are done.
    """
    last = until or datetime.now(UTC).date() - timedelta(days=1)
    async with database.connected("owner", "compaction", _GOES_ON) as connection:
        # The lock and any commit end with the connection.
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        run = _Run(connection, destination, last)
        for tenant in tenants if tenants is not None else await _tenants(connection):
            for dataset in DATASETS:
                await run.dataset(tenant, dataset)
    return run.result()


class _Run:
    """State of one run."""

    def __init__(self, connection: Any, destination: Destination, last: date) -> None:
        self._connection, self._destination, self._last = connection, destination, last
        self._scratch = destination.scratch() / "compaction"
        self._written: list[Export] = []
        self._unchanged = self._removed = 0
        self._failed: list[str] = []
        self._left: list[str] = []

    async def dataset(self, tenant: UUID, dataset: Dataset) -> None:
        async with as_tenant(self._connection, tenant):
            current = await ledger.exports(self._connection, tenant, dataset)
        there, ahead = await self._sweep(tenant, dataset, current)
        async with as_tenant(self._connection, tenant):
            days = current.keys() | ahead.keys()
            found = await ledger.sources(self._connection, dataset, days, None, self._last)
        for day, source in found.items():
            export, unnamed = current.get(day), ahead.get(day, [])
            lies_there = export is not None and export.path in there
            if not unnamed and export is not None and lies_there and export.source == str(source):
                self._unchanged += 1
            elif unnamed or export is not None or source.hot != ledger.NOTHING:
                await self._try_day(tenant, dataset, day, export, unnamed)

    def result(self) -> CompactionResult:
        told = [
            f"{len(failed)} {what}:\n" + "\n".join(failed[:20])
            for what, failed in (
                ("days not written to the cold store", self._failed),
                ("obsolete files not removed", self._left),
            )
            if failed
        ]
        if told:
            told.append("fix this and run again; all other days are done")
            raise StoreError("\n".join(told))
        return CompactionResult(tuple(self._written), self._unchanged, self._removed)

    async def _sweep(
        self, tenant: UUID, dataset: Dataset, current: dict[date, Export]
    ) -> tuple[set[str], dict[date, list[OrphanFile]]]:
        folder = ledger.folder_of(dataset, tenant)
        paths = await asyncio.to_thread(lambda: list(self._destination.paths(folder)))
        replaced, ahead = sorted_out(folder, paths, current)
        for path in replaced:
            await self._remove(tenant, path)
        return set(paths), ahead

    async def _remove(self, tenant: UUID, path: str) -> None:
        """Remove an obsolete file; if a reader holds it, the next run removes it."""
        lock = str(tenant)
        if not await self._connection.fetchval(
            f"SELECT pg_try_advisory_lock({ledger.READING})", lock
        ):
            return
        try:
            await asyncio.to_thread(self._destination.remove, path)
        except (DataError, OSError) as error:
            # It is obsolete; other tenants' rows must still be written.
            _log.exception("cannot remove %s", path)
            self._left.append(f"{path}: {error}")
            return
        finally:
            await self._connection.execute(f"SELECT pg_advisory_unlock({ledger.READING})", lock)
        self._removed += 1

    async def _try_day(
        self,
        tenant: UUID,
        dataset: Dataset,
        day: date,
        old: Export | None,
        unnamed: Sequence[OrphanFile],
    ) -> None:
        try:
            new = await self._day(tenant, dataset, day, old, unnamed)
        except (DataError, OSError, ValueError, TypeError) as error:
            # A damaged file or invalid row of one tenant must not stop the others.
            _log.exception("cannot write %s of %s on %s", dataset.name, tenant, day)
            self._failed.append(f"{dataset.name} of tenant {tenant} on {day}: {error}")
            return
        replaced = [file.path for file in unnamed]
        if new is None:
            self._unchanged += 1
        else:
            self._written.append(new)
            replaced += [old.path] if old is not None else []
        for path in replaced:  # all their rows are in the file that counts, unless they were erased
            await self._remove(tenant, path)

    async def _day(
        self,
        tenant: UUID,
        dataset: Dataset,
        day: date,
        old: Export | None,
        unnamed: Sequence[OrphanFile],
    ) -> Export | None:
        """Write a day unless its file is up to date."""
        shutil.rmtree(self._scratch, ignore_errors=True)  # of a killed run, or of the day before
        self._scratch.mkdir(mode=0o700)
        files = await asyncio.to_thread(self._fetch_all, dataset, old, unnamed)
        async with self._connection.transaction(isolation="repeatable_read"):
            await set_tenant(self._connection, tenant)
            found = await ledger.sources(self._connection, dataset, [day], day, day)
            erased = await ledger.erasures(self._connection)
            there = old is not None and old.path in files
            if old is not None and not there and not unnamed and not old.is_in(found[day]):
                message = (
                    f"{old.path} is missing from the cold store; restore it from a backup, or "
                )
                raise DataError(message + "use the destination that it was written to")
            if old is not None and there and not unnamed:
                no_news = found[day].hot in (ledger.NOTHING, old.source.partition("/")[0])
                path = files[old.path]
                if no_news and not await asyncio.to_thread(mentions, path, dataset, erased):
                    await ledger.touch(self._connection, old, found[day])
                    return None
            draft = self._scratch / "draft.parquet"
            paths = list(files.values())
            written, digest = await self._renewed(draft, dataset, day, paths, erased)
            if old is not None and there and digest == old.sha256:
                await ledger.touch(self._connection, old, found[day])
                return None
            known = [old.generation] if old is not None else [0]
            generation = 1 + max(known + [file.generation for file in unnamed])
            place = ledger.path_of(dataset, tenant, day, generation)
            source = str(found[day])
            new = Export(tenant, dataset.name, day, generation, place, written, digest, source)
            # Register before publishing, so that retries leave no files.
            await ledger.record(self._connection, new)
            await asyncio.to_thread(self._destination.publish, draft, place)
        return new

    async def _renewed(
        self, draft: Path, dataset: Dataset, day: date, paths: Sequence[Path], erased: ErasureRecord
    ) -> tuple[int, bytes]:
        """Write a day's next file from its hot rows and the rows that only files have."""
        if dataset is DECISION:
            for path in paths:
                known = await asyncio.to_thread(episodes, path, erased)
                await ledger.name_episodes(self._connection, known)
        hot = self._hot(dataset, day)
        if not paths:
            return await _to_file(draft, dataset, hot)
        if len(paths) == 1:
            try:
                keys = read_keys(paths[0], dataset, erased)
                return await _to_file(draft, dataset, covering(dataset, keys, hot))
            except NotCovered:
                hot = self._hot(dataset, day)
        # Retention dropped some rows, so they come from the files, which is slower.
        rows = united(dataset, [read_rows(path, dataset, erased) for path in paths])
        return await _to_file(draft, dataset, merged(dataset, rows, hot))

    def _hot(self, dataset: Dataset, day: date) -> AsyncIterator[Row]:
        return hot_rows(self._connection, dataset, day)

    def _fetch_all(
        self, dataset: Dataset, old: Export | None, unnamed: Sequence[OrphanFile]
    ) -> dict[str, Path]:
        """Return local files with rows of a day by path; the newest last."""
        fetched = {}
        for place in ([old.path] if old is not None else []) + [file.path for file in unnamed]:
            try:
                fetched[place] = self._destination.fetch(place, self._scratch)
            except FileNotFoundError as error:
                if old is not None and place == old.path:
                    continue  # a later generation has replaced it, or PostgreSQL has its rows
                message = f"{place} was removed while it was being registered; run again"
                raise DataError(message) from error
        if old is not None and old.path in fetched and digest_of(fetched[old.path]) != old.sha256:
            # Changed bits are often readable and would be copied into the next file.
            raise DataError(f"{old.path} is damaged; restore it from a backup of the cold store")
        for file in unnamed:
            check_whole(fetched[file.path], dataset, file.path)
            _log.warning("%s is not registered in cold_export; importing its rows", file.path)
        return fetched


async def hot_rows(connection: Any, dataset: Dataset, day: date) -> AsyncIterator[Row]:
    """Yield a day's rows in PostgreSQL that are not erased, in order; set the tenant first.

    `day`: UTC day.
    """
    async for row in connection.cursor(dataset.rows_sql(day), prefetch=_PREFETCH):
        yield tuple(row)


async def _to_file(draft: Path, dataset: Dataset, rows: AsyncIterator[Row]) -> tuple[int, bytes]:
    writer = Writer(draft, dataset)
    try:
        await writer.write(rows)
        digest = await asyncio.to_thread(writer.close)
    except BaseException:
        writer.abandon()
        raise
    return writer.rows, digest


async def _tenants(connection: Any) -> list[UUID]:
    return [row["id"] for row in await connection.fetch("SELECT id FROM tenant ORDER BY id")]


_LONGEST_WAIT_S = 60.0
_LONGEST_BETWEEN_S = 86_400.0
_RETRY_S = 600.0


async def run_daily(
    database: Database,
    destination: Destination,
    *,
    tenants: Sequence[UUID] | None = None,
    clock: Callable[[], float] = time.time,
    at: str = "02:30",
    stop: asyncio.Event | None = None,
    report: Callable[[CompactionResult | SteersmanError], None] | None = None,
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
        outcome: CompactionResult | SteersmanError
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
