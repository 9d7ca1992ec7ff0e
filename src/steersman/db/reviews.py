"""Review list: texts flagged by detectors, for human review."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from steersman.db.audit import record
from steersman.errors import StateError
from steersman.wire import new_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

Resolution = Literal["confirmed", "dismissed"]
_COLUMNS = (
    "tenant, id, at, detector, kinds, score, subject, excerpt, verdict, note, resolved_at, "
    "resolved_by"
)


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """Flagged text.

    Attributes:
        tenant: tenant id.
        id: UUIDv7.
        at: filing time.
        detector: detector that flagged it.
        kinds: distinct kinds of findings.
        score: highest score, in [0, 1].
        subject: origin of the text, such as ``decision/0199…`` or ``run/handbook/12/q7``.
        excerpt: masked text.
        verdict: confirmed or dismissed; None while open.
        note: note of the reviewer.
        resolved_at: review time; None while open.
        resolved_by: reviewer; None while open.
    """

    tenant: UUID
    id: UUID
    at: datetime
    detector: str
    kinds: tuple[str, ...]
    score: float
    subject: str
    excerpt: str
    verdict: Resolution | None
    note: str
    resolved_at: datetime | None
    resolved_by: str | None


async def file_for_review(
    connection: Any,
    tenant: UUID,
    *,
    detector: str,
    kinds: Sequence[str],
    score: float,
    subject: str,
    excerpt: str,
    at: datetime,
) -> bool:
    """Add a flagged text to the list, once per detector and subject.

    Args:
        score: highest score, in [0, 1].
        subject: origin of the text, at most 500 bytes.
        excerpt: text with personal data masked; cut after 4,000 characters. Characters that
            PostgreSQL rejects (NUL, half of a surrogate pair) become a question mark.
    """
    filed = await connection.fetchval(
        "INSERT INTO review (tenant, id, at, detector, kinds, score, subject, excerpt) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) "
        "ON CONFLICT (tenant, subject, detector) DO NOTHING RETURNING id",
        *(tenant, new_id(), at, detector, sorted(set(kinds)), score),
        *(_storable(subject), _storable(excerpt[:4000])),
    )
    return filed is not None


async def reviews_of(
    connection: Any, tenant: UUID, *, open_only: bool = True, limit: int = 100
) -> list[ReviewRow]:
    """Return the review list.

    Args:
        limit: maximum number, 1 or more.
    """
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM review WHERE tenant = $1 "  # noqa: S608 (constants)
        "AND (verdict IS NULL OR NOT $2) ORDER BY at, id LIMIT $3",
        *(tenant, open_only, limit),
    )
    return [_row(one) for one in rows]


async def find_review(connection: Any, tenant: UUID, identifier: UUID) -> ReviewRow:
    """Return one item of the list.

    Raises:
        StateError: the tenant has no such item.
    """
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM review WHERE tenant = $1 AND id = $2",  # noqa: S608 (constants)
        *(tenant, identifier),
    )
    if row is None:
        raise _unknown(identifier)
    return _row(row)


async def resolve_review(
    connection: Any,
    tenant: UUID,
    identifier: UUID,
    *,
    verdict: Resolution,
    note: str,
    actor: str,
    at: datetime,
) -> ReviewRow:
    """Record the verdict on a flagged text, with an audit row; the last verdict counts.

    Raises:
        StateError: the tenant has no such item.
    """
    row = await connection.fetchrow(
        "UPDATE review SET verdict = $3, note = $4, resolved_at = $5, resolved_by = $6 "  # noqa: S608 (constants)
        f"WHERE tenant = $1 AND id = $2 RETURNING {_COLUMNS}",
        *(tenant, identifier, verdict, note, at, actor),
    )
    if row is None:
        raise _unknown(identifier)
    detail = {"verdict": verdict, "note": note}
    await record(connection, tenant, actor, "review.resolve", str(identifier), detail)
    return _row(row)


def _storable(text: str) -> str:
    return text.replace("\0", "?").encode("utf-8", "replace").decode()


def _row(row: Any) -> ReviewRow:
    values = dict(row)
    return ReviewRow(**{**values, "kinds": tuple(values["kinds"])})


def _unknown(identifier: UUID) -> StateError:
    message = f"review item not found: {identifier}; "
    return StateError(message + "`steersman review list --all` lists all")
