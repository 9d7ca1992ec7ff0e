"""Compaction: writes PostgreSQL rows to one Parquet file per tenant, dataset and day.

For each day: read rows and erasures from one snapshot, write a file in a scratch folder, publish
it, record it in ``cold_export``, commit, then remove older generations. A file counts only after
the commit, so a run can be killed at any point; the next run handles leftover files (see
`unnamed`). Runs are serialised.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from steersman.db.archive import ledger
from steersman.db.archive.datasets import DATASETS, DECISION
from steersman.db.archive.ledger import Export
from steersman.db.archive.orphan_files import check_whole, sorted_out
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
from steersman.errors import DataError, StoreError
from steersman.platform.postgres.database import as_tenant, set_tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from steersman.db.archive.datasets import Dataset, Row
    from steersman.db.archive.destination import Destination
    from steersman.db.archive.ledger import Erased
    from steersman.db.archive.orphan_files import Unnamed
    from steersman.platform.postgres.database import Database

_LOCK = 7_365_366
_PREFETCH = 1_000
_GOES_ON = "files already written stay valid; run it again for the rest"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compacted:
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
) -> Compacted:
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

    def result(self) -> Compacted:
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
        return Compacted(tuple(self._written), self._unchanged, self._removed)

    async def _sweep(
        self, tenant: UUID, dataset: Dataset, current: dict[date, Export]
    ) -> tuple[set[str], dict[date, list[Unnamed]]]:
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
        unnamed: Sequence[Unnamed],
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
        unnamed: Sequence[Unnamed],
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
        self, draft: Path, dataset: Dataset, day: date, paths: Sequence[Path], erased: Erased
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
        self, dataset: Dataset, old: Export | None, unnamed: Sequence[Unnamed]
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
