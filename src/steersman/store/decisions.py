"""Decisions on their way to disk: the row, and a batch of rows in one transaction."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 (records are decoded by these types)
from datetime import datetime  # noqa: TC003
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID  # noqa: TC003

from steersman.store.database import as_tenant
from steersman.store.slices import slices

if TYPE_CHECKING:
    from collections.abc import Collection


class DecisionRow(NamedTuple):
    """One row of table ``decision``, in the order of its columns.

    Attributes:
        tenant: whose it is.
        id: UUIDv7, made by who decided.
        skill: the application capability.
        point: the decision point.
        episode: what it belongs to with others, if anything.
        parent: the decision it follows from.
        unit: what stays on one arm of a rollout.
        rollout: the rollout under way, if any.
        stage: shadow, canary, ab or live.
        arm: control or candidate.
        snapshot: the policy state it was drawn from: this snapshot,
        update_seq: and this many updates after it.
        spec_hash: 32 bytes.
        feature_hash: 32 bytes.
        context: what was known; JSON.
        eligible: names allowed for the request; None: every declared one. Of a selection: the
            candidates that are there from the start.
        distribution: float32 probabilities over the declared actions; over ``eligible`` if open;
            of every value of every part where they are mixed; of each step's eligible actions,
            one step after the other, where they are a sequence.
        action: what was drawn.
        p: the exact probability of the draw; None if it was never known (imported logs).
        p_kind: exact, fallback, client, imported or none.
        x: what the policy saw for the action drawn.
        key: likewise, for policies that learn apart by key.
        features: of all eligible actions, one row after the other; of a selection also of those
            that others lead to.
        u: the uniform of the draw.
        degraded: whether a fallback answered.
        weight: how many observations it counts for when learned; 0: never learned.
        idempotency_key: the request's, if it had one.
        body_hash: of the request, where it has a key.
        traceparent: W3C trace context of the request.
        at: when it was made.
        window_ends: when its reward is final.
        links: of a selection: what picking a candidate brings in, as the request says it.
        steps: of a selection: {eligible, action, p} of each step; the product of p is the row's.
    """

    tenant: UUID
    id: UUID
    skill: str
    point: str
    episode: str | None
    parent: UUID | None
    unit: str | None
    rollout: str | None
    stage: str
    arm: str
    snapshot: str
    update_seq: int
    spec_hash: bytes
    feature_hash: bytes
    context: Any
    eligible: list[str] | None
    distribution: list[float]
    action: str
    p: float | None
    p_kind: str
    x: Sequence[float] | None
    key: str | None
    features: Sequence[float] | None
    u: float | None
    degraded: bool
    weight: float
    idempotency_key: str | None
    body_hash: bytes | None
    traceparent: str | None
    at: datetime
    window_ends: datetime
    links: Any = None
    steps: Any = None


class Taken(NamedTuple):
    """A row was not written: its idempotency key names an earlier decision, or its own id does.

    Attributes:
        earlier: the decision that has the key; the row's own id where a client gave it to two.
        body_hash: of the request it answered; None where it is the id.
    """

    earlier: UUID
    body_hash: bytes | None


async def log_decisions(
    connection: Any, rows: Sequence[DecisionRow], *, settling: Collection[UUID] = ()
) -> dict[UUID, Taken]:
    """Write decisions of any tenants, all or none, in one transaction of their own.

    A row whose id is there already is left alone, so a batch may be written again when it is not
    known whether the first try was committed. Where a client made the id, it is told if what is
    there is another decision.

    Args:
        connection: of role app, not within a transaction.
        rows: in any order.
        settling: ids of those whose reward is due when their window closes, come what may: the
            declaration gives a missing reward a value, or credits the whole episode.

    Returns:
        By id, the rows that were not written because their key or id names another decision.
    """
    batch = sorted(rows, key=_order)
    taken = await connection.fetch(
        "SELECT asked, earlier, earlier_hash FROM log_decisions($1, $2, $3, $4, $5)",
        batch,
        *slices([row.tenant for row in batch]),
        list(settling),
    )
    return {asked: Taken(earlier, body_hash) for asked, earlier, body_hash in taken}


async def find_decision(connection: Any, tenant: UUID, identifier: UUID) -> DecisionRow | None:
    """Return one decision of a tenant.

    Args:
        connection: of any role, not within a transaction.
        tenant: whose decision it must be.
        identifier: its id.

    Returns:
        The row; None if this tenant has no such decision, whoever else may have.
    """
    async with as_tenant(connection, tenant):
        found = await connection.fetchrow("SELECT * FROM decision WHERE id = $1", identifier)
    return None if found is None else DecisionRow(*found)


def _order(row: DecisionRow) -> tuple[int, str, int]:
    # Every writer takes keys in this order: two batches with crossing keys cannot deadlock.
    return row.tenant.int, row.idempotency_key or "", row.id.int
