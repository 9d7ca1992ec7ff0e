"""The review list: what a detector flagged, until a person has looked at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from steersman.errors import StateError
from steersman.store.audit import record
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
    """A text that was flagged.

    Attributes:
        tenant: whose it is.
        id: UUIDv7.
        at: when it was filed.
        detector: who flagged it.
        kinds: of what was found, each once.
        score: the highest, in [0, 1].
        subject: where the text comes from, such as ``decision/0199…`` or ``run/handbook/12/q7``.
        excerpt: the text, masked.
        verdict: what a person said: confirmed or dismissed; None while nobody has looked.
        note: of that person.
        resolved_at: when; None while nobody has.
        resolved_by: who; None while nobody has.
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
    """Put a flagged text on the list; what one detector says of one subject is there once.

    Args:
        connection: of role owner or app, within a transaction of the tenant.
        tenant: whose.
        detector: who flagged it.
        kinds: of what was found.
        score: the highest, in [0, 1].
        subject: where the text comes from, at most 500 bytes.
        excerpt: the text, with personal data masked; cut after 4,000 characters. What PostgreSQL
            does not take of either (NUL, half of a surrogate pair) becomes a question mark.
        at: when.

    Returns:
        Whether it was put there; False if it stood there already, looked at or not.
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
    """Return the list.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.
        open_only: those alone that nobody has looked at.
        limit: at most so many, 1 or more.

    Returns:
        Rows, the oldest first.
    """
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM review WHERE tenant = $1 "  # noqa: S608 (constants)
        "AND (verdict IS NULL OR NOT $2) ORDER BY at, id LIMIT $3",
        *(tenant, open_only, limit),
    )
    return [_row(one) for one in rows]


async def find_review(connection: Any, tenant: UUID, identifier: UUID) -> ReviewRow:
    """Return one item of the list.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.
        identifier: of the item.

    Returns:
        The row.

    Raises:
        StateError: this tenant has no such item.
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
    """Write down what a person says of a flagged text, with its audit; the last word counts.

    Args:
        connection: of role owner, within a transaction of the tenant.
        tenant: whose.
        identifier: of the item.
        verdict: ``confirmed`` or ``dismissed``.
        note: why; kept in the audit as well, so nothing personal.
        actor: who.
        at: when.

    Returns:
        The row.

    Raises:
        StateError: this tenant has no such item.
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
    """Return a text without what would keep a whole list from being filed: models write it too."""
    return text.replace("\0", "?").encode("utf-8", "replace").decode()


def _row(row: Any) -> ReviewRow:
    values = dict(row)
    return ReviewRow(**{**values, "kinds": tuple(values["kinds"])})


def _unknown(identifier: UUID) -> StateError:
    message = f"review item not found: {identifier}; "
    return StateError(message + "`steersman review list --all` lists all")
