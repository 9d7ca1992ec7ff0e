"""Answer cache limits by age and size per tenant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from steersman.db.packed_vectors import MAX_PACKED_BYTES
from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from steersman.platform.postgres.database import Database

_TOO_MANY = (
    "DELETE FROM answer_cache AS c USING ("
    "SELECT key, sum(octet_length(value)) OVER (ORDER BY used_at DESC, key) AS total "
    "FROM answer_cache) AS o WHERE c.key = o.key AND o.total > $1"
)
_ALONE = (
    "SELECT pg_try_advisory_xact_lock("
    "hashtextextended('answers/' || current_setting('app.tenant'), 0))"
)


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of a tenant's answer cache.

    Attributes:
        days: days after the last use until an answer is removed, 1 to 3,650.
        max_bytes: maximum total size, ≥ 1 MiB; the least recently used answers are removed
            first.

    Raises:
        InputError: a number is out of range.

    >>> AnswerLimits().days
    30
    """

    days: int = 30
    max_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("days", self.days, 1, 3650),
            ("max_bytes", self.max_bytes, MAX_PACKED_BYTES, 1 << 50),
        ):
            if not least <= value <= most:
                raise InputError(f"{name} is {value!r}; allowed is {least:,} to {most:,}")


async def trim_answers(
    connection: Any, limits: AnswerLimits, *, now: datetime | None = None
) -> int:
    """Remove the cached answers of a tenant that exceed the limits.

    Args:
        now: current time; default: system clock.

    Returns:
        Number of removed answers; 0 if another process is trimming.
    """
    # Prevents a deadlock of two processes that remove the same rows.
    if not await connection.fetchval(_ALONE):
        return 0
    before = (now or datetime.now(UTC)) - timedelta(days=limits.days)
    old = await connection.execute("DELETE FROM answer_cache WHERE used_at < $1", before)
    many = await connection.execute(_TOO_MANY, limits.max_bytes)
    return int(old.split()[-1]) + int(many.split()[-1])


async def trim_all_answers(database: Database, limits: AnswerLimits | None = None) -> int:
    """Remove the cached answers of every tenant that exceed the limits.

    Args:
        limits: cache limits per tenant; default: `AnswerLimits()`.

    Raises:
        StoreError: the database is unreachable.
    """
    connection = await database.connect("owner")
    removed = 0
    try:
        for row in await connection.fetch("SELECT id FROM tenant ORDER BY id"):
            async with as_tenant(connection, row["id"]):
                removed += await trim_answers(connection, limits or AnswerLimits())
    finally:
        await connection.close()
    return removed
