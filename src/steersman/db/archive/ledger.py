"""Table ``cold_export``: valid files, their generations and sources.

Rows never change, so a fingerprint of a day's hot rows (without erased ones) and of the erasures
shows whether the day changed. Hot rows that disappear without an erasure were dropped by retention;
then the file has the only copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.db.archive.datasets import DECISION, EVENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date
    from uuid import UUID

    from steersman.db.archive.datasets import Dataset

NOTHING = "0:0"
READING = "hashtextextended('steersman cold store of ' || $1, 0)"
"""SQL of a tenant's advisory lock: shared for reading files, exclusive for removing them."""


@dataclass(frozen=True, slots=True)
class Export:
    """Valid file.

    Attributes:
        tenant: tenant id.
        dataset: decision, event or reward.
        day: UTC day of the rows.
        generation: generation of this day: 1, 2, …; the highest is valid.
        path: relative to the destination.
        rows: number of rows.
        sha256: SHA-256 of the file.
        source: fingerprint of what it was made from.
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
        """Return whether PostgreSQL has all rows of the file."""
        made_from = self.source.partition("/")[0]
        return source.hot == made_from and source.hot.partition(":")[0] == str(self.rows)


@dataclass(frozen=True, slots=True)
class Source:
    """Fingerprint of a day's rows in PostgreSQL.

    Attributes:
        hot: count and fingerprint of the hot rows.
        erased: count and fingerprint of the erasures that can affect the day.
    """

    hot: str = NOTHING
    erased: str = NOTHING

    def __str__(self) -> str:
        return f"{self.hot}/{self.erased}"


@dataclass(frozen=True, slots=True)
class ErasureRecord:
    """Erasures of one tenant.

    Attributes:
        decisions: ids of erased decisions.
        episodes: their episodes.
    """

    decisions: frozenset[str]
    episodes: frozenset[str]


def folder_of(dataset: Dataset, tenant: UUID) -> str:
    """Return the folder of a tenant's dataset."""
    return f"{dataset.name}/tenant={tenant}"


def path_of(dataset: Dataset, tenant: UUID, day: date, generation: int) -> str:
    """Return the path of a file."""
    return f"{folder_of(dataset, tenant)}/day={day.isoformat()}/part-{generation}.parquet"


async def exports(connection: Any, tenant: UUID, dataset: Dataset) -> dict[date, Export]:
    """Return the valid files by day; set the tenant first."""
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
    """Return the source of each day; set the tenant first.

    `first`: first day of hot rows; None: from the beginning.
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
    """Return the fingerprint of the erasures that can affect a day's rows."""
    count, mark = 0, 0
    for erased_day, more, other in erased:
        # Events can arrive at any time, for an episode even before its last decision.
        if dataset is EVENT or erased_day == day:
            count, mark = count + more, mark ^ other
    return f"{count}:{mark}"


async def name_episodes(connection: Any, episodes: Mapping[str, str]) -> None:
    """Add to erasures the episodes that only a file knew."""
    await connection.executemany(
        "UPDATE erasure SET episode = $2 WHERE decision = $1::text::uuid AND episode IS NULL",
        sorted(episodes.items()),
    )


async def erasures(connection: Any) -> ErasureRecord:
    """Return all erasures; set the tenant first."""
    rows = await connection.fetch("SELECT decision::text, episode FROM erasure")
    return ErasureRecord(
        frozenset(decision for decision, _ in rows),
        frozenset(episode for _, episode in rows if episode is not None),
    )


async def record(connection: Any, export: Export) -> None:
    """Make a file valid from this transaction's commit on; set the tenant first."""
    await connection.execute(
        "INSERT INTO cold_export (tenant, dataset, day, generation, path, rows, sha256, source) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        *(export.tenant, export.dataset, export.day, export.generation),
        *(export.path, export.rows, export.sha256, export.source),
    )


async def touch(connection: Any, export: Export, source: Source) -> None:
    """Record that a file is still up to date; set the tenant first."""
    await connection.execute(
        "UPDATE cold_export SET source = $5 "
        "WHERE tenant = $1 AND dataset = $2 AND day = $3 AND generation = $4",
        *(export.tenant, export.dataset, export.day, export.generation, str(source)),
    )
