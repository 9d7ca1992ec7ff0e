"""Table ``cold_export``: which file of which generation counts, and from what it was made.

Rows never change, so a fingerprint of a day's hot rows (without the erased ones) and of the
erasures that may concern it tells whether there is news. Hot rows that are gone without having
been erased were dropped by retention: then the file is the only place where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.store.cold.datasets import DECISION, EVENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date
    from uuid import UUID

    from steersman.store.cold.datasets import Dataset

NOTHING = "0:0"
READING = "hashtextextended('steersman cold store of ' || $1, 0)"
"""SQL of a tenant's advisory lock: shared by those who read files, taken by who removes some."""


@dataclass(frozen=True, slots=True)
class Export:
    """One file that counts.

    Attributes:
        tenant: whose rows it holds.
        dataset: decision, event or reward.
        day: of the rows, in UTC.
        generation: 1, 2, … of this day; the highest counts.
        path: relative to the destination.
        rows: how many.
        sha256: of the file.
        source: what it was made from.
    """

    tenant: UUID
    dataset: str
    day: date
    generation: int
    path: str
    rows: int
    sha256: bytes
    source: str

    def is_in(self, source: Source) -> bool:
        """Return whether PostgreSQL has all rows of the file.

        Args:
            source: what there is of the day now.
        """
        made_from = self.source.partition("/")[0]
        return source.hot == made_from and source.hot.partition(":")[0] == str(self.rows)


@dataclass(frozen=True, slots=True)
class Source:
    """What there is of a day outside its file.

    Attributes:
        hot: number and fingerprint of the hot rows.
        erased: likewise, of the erasures that may concern the day.
    """

    hot: str = NOTHING
    erased: str = NOTHING

    def __str__(self) -> str:
        return f"{self.hot}/{self.erased}"


@dataclass(frozen=True, slots=True)
class Erased:
    """What was erased, of one tenant.

    Attributes:
        decisions: their ids.
        episodes: what they were part of.
    """

    decisions: frozenset[str]
    episodes: frozenset[str]


def folder_of(dataset: Dataset, tenant: UUID) -> str:
    """Return the folder of a tenant's files of one dataset."""
    return f"{dataset.name}/tenant={tenant}"


def path_of(dataset: Dataset, tenant: UUID, day: date, generation: int) -> str:
    """Return where a file lies."""
    return f"{folder_of(dataset, tenant)}/day={day.isoformat()}/part-{generation}.parquet"


async def exports(connection: Any, tenant: UUID, dataset: Dataset) -> dict[date, Export]:
    """Return the files that count, by day; the tenant must be set."""
    rows = await connection.fetch(
        "SELECT DISTINCT ON (day) tenant, dataset, day, generation, path, rows, sha256, source "
        "FROM cold_export WHERE tenant = $1 AND dataset = $2 ORDER BY day, generation DESC",
        tenant,
        dataset.name,
    )
    return {row["day"]: Export(*row) for row in rows}


async def sources(
    connection: Any, dataset: Dataset, days: Iterable[date], first: date | None, last: date
) -> dict[date, Source]:
    """Return what there is of each day outside its file; the tenant must be set.

    Args:
        connection: within a transaction.
        dataset: whose days.
        days: wanted in any case.
        first: the first day on which hot rows are looked for; None: from the beginning.
        last: the last one.
    """
    rows = await connection.fetch(dataset.sources_sql(first, last))
    hot = {day: f"{count}:{mark}" for day, count, mark in rows}
    erased = await connection.fetch(
        f"SELECT {DECISION.day} AS day, count(*), bit_xor({DECISION.fingerprint}) "  # noqa: S608 (likewise)
        "FROM (SELECT decision AS id FROM erasure) AS r GROUP BY 1"
    )
    return {
        day: Source(hot.get(day, NOTHING), _concerning(dataset, day, erased))
        for day in sorted(hot.keys() | set(days))
    }


def _concerning(dataset: Dataset, day: date, erased: Iterable[tuple[date, int, int]]) -> str:
    """Return the fingerprint of the erasures that a day's rows may be about."""
    count, mark = 0, 0
    for erased_day, more, other in erased:
        # Events come whenever they come, and those of an episode even before its last decision.
        if dataset is EVENT or erased_day == day:
            count, mark = count + more, mark ^ other
    return f"{count}:{mark}"


async def name_episodes(connection: Any, episodes: Mapping[str, str]) -> None:
    """Add to erasures what only a file knew: which episode the decision was part of."""
    await connection.executemany(
        "UPDATE erasure SET episode = $2 WHERE decision = $1::text::uuid AND episode IS NULL",
        sorted(episodes.items()),
    )


async def erasures(connection: Any) -> Erased:
    """Return what was erased; the tenant must be set."""
    rows = await connection.fetch("SELECT decision::text, episode FROM erasure")
    return Erased(
        frozenset(decision for decision, _ in rows),
        frozenset(episode for _, episode in rows if episode is not None),
    )


async def record(connection: Any, export: Export) -> None:
    """Make a file count from the commit of this transaction on; the tenant must be set."""
    await connection.execute(
        "INSERT INTO cold_export (tenant, dataset, day, generation, path, rows, sha256, source) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        *(export.tenant, export.dataset, export.day, export.generation),
        *(export.path, export.rows, export.sha256, export.source),
    )


async def touch(connection: Any, export: Export, source: Source) -> None:
    """Note that a file holds what there is now, too; the tenant must be set."""
    await connection.execute(
        "UPDATE cold_export SET source = $5 "
        "WHERE tenant = $1 AND dataset = $2 AND day = $3 AND generation = $4",
        *(export.tenant, export.dataset, export.day, export.generation, str(source)),
    )
