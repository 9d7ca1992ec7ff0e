"""Decision rows: row type, batch insert and lookup."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 (msgspec reads the types)
from datetime import datetime  # noqa: TC003
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID  # noqa: TC003

import msgspec
import numpy as np

from steersman.db.write_batches import slices
from steersman.errors import InputError
from steersman.platform.postgres import bulk_encoder
from steersman.platform.postgres.database import as_tenant
from steersman.spec.actions import Mixed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from asyncpg import Connection
    from numpy.typing import NDArray

    from steersman.platform.postgres.database import Database
    from steersman.policies.offered import Offered
    from steersman.spec.actions import Actions

    Floats = NDArray[np.float64]

# Columns whose values many rows share: the encoder keeps their bytes.
REPEATED_COLUMNS = (
    *("tenant", "skill", "point", "stage", "arm", "snapshot", "update_seq", "spec_hash"),
    *("feature_hash", "action", "p_kind", "degraded", "weight", "at", "window_ends"),
)


def offered_of(
    eligible: Sequence[str] | None,
    links: Mapping[str, Sequence[str]] | None,
    features: Sequence[float] | None,
) -> Offered:
    """Return the candidates of a stored selection.

    Raises:
        InputError: the row is not a selection.

    >>> offered_of(["a"], {"a": ["b"]}, [0.5, 0.25]).rows.tolist()
    [[0.5], [0.25]]
    """
    from steersman.policies.offered import Offered, offered_names  # noqa: PLC0415 (slow)

    if not eligible:
        raise InputError("this row has no candidates; it is not from a sampled selection")
    count = len(offered_names(eligible, links))
    rows = np.asarray(() if features is None else features, np.float64)
    if len(rows) % count:
        raise InputError(f"{len(rows)} numbers cannot be split among {count} candidates")
    return Offered.of(eligible, links, rows.reshape(count, -1))


def done_in(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the actions of a stored selection.

    >>> done_in([{"eligible": ["a", "stop"], "action": "a", "p": 0.5}])
    ['a']
    """
    return [step["action"] for step in steps]


class LoggedDistribution:
    """Encoder of the column ``distribution``.

    Args:
        actions: declared actions.

    >>> from steersman.spec.actions import Mixed
    >>> parts = {"k": {"type": "integer", "low": 1, "high": 2}, "on": {"type": "boolean"}}
    >>> mixed = Mixed.model_validate({"kind": "mixed", "parts": parts})
    >>> LoggedDistribution(mixed).of(np.array([0.5, 0.25, 0.125, 0.125])).tolist()
    [0.75, 0.25, 0.625, 0.375]
    >>> mixed.marginals
    ('k=1', 'k=2', 'on=false', 'on=true')
    """

    def __init__(self, actions: Actions) -> None:
        self._columns: tuple[NDArray[np.intp], ...] = ()
        self._count = 0
        if isinstance(actions, Mixed):
            columns = []
            for part, name in enumerate(actions.order):
                grid = actions.parts[name].grid
                place = {value: self._count + number for number, value in enumerate(grid)}
                columns.append([place[values[part]] for values in actions.configurations])
                self._count += len(grid)
            self._columns = tuple(np.array(column, np.intp) for column in columns)

    def of(self, distribution: Floats) -> NDArray[np.float32]:
        """Return the logged form of a distribution.

        Returns:
            float32 marginals as in `Mixed.marginals`; for other actions, all probabilities.
        """
        if not self._columns:
            return distribution.astype(np.float32)
        found = np.zeros(self._count)
        for column in self._columns:
            found += np.bincount(column, weights=distribution, minlength=self._count)
        return found.astype(np.float32)

    def of_many(self, distributions: Sequence[Floats]) -> list[list[float]]:
        """Return the logged form of several distributions over the same actions."""
        if not self._columns:
            every: list[list[float]] = np.array(distributions, dtype=np.float32).tolist()
            return every
        return [self.of(one).tolist() for one in distributions]


class DecisionRow(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, forbid_unknown_fields=True
):
    """Row of table ``decision``. The fields are the table's columns, in its order.

    As JSON it is an array, as in signed records. The garbage collector need not track rows: they
    hold plain data without cycles.

    Attributes:
        tenant: tenant id.
        id: UUIDv7 from the decider.
        skill: skill name.
        point: decision point name.
        episode: episode id, if any.
        parent: previous decision, if any.
        unit: unit that stays on one arm of a rollout.
        rollout: active rollout, if any.
        stage: shadow, canary, ab or live.
        arm: control or candidate.
        snapshot: policy state of the decision: this snapshot,
        update_seq: and this many updates after it.
        spec_hash: 32 bytes.
        feature_hash: 32 bytes.
        context: context as JSON.
        eligible: allowed action names of the request; None: all declared ones. Of a
            selection: the initial candidates.
        distribution: float32 probabilities of the declared actions, or of ``eligible`` if
            open. Mixed actions: of every value of every part. Sequences: of each step's
            eligible actions in order.
        action: drawn action.
        p: exact propensity; None if unknown (imported logs).
        p_kind: exact, fallback, client, imported or none.
        x: features for the drawn action.
        key: key, for policies that learn by key.
        features: features of all eligible actions, row by row; of a selection also of
            linked candidates.
        u: uniform of the draw.
        degraded: whether a fallback answered.
        weight: number of observations it counts for in learning; 0: never learned.
        idempotency_key: idempotency key of the request, if any.
        body_hash: hash of the request, if it has a key.
        traceparent: W3C trace context of the request.
        at: decision time.
        window_ends: end of the reward window.
        links: of a selection: candidates that a pick adds.
        steps: of a selection: {eligible, action, p} of each step; the product of p is the
            row's p.
    """

    tenant: UUID
    id: UUID
    skill: str
    point: str
    episode: str | None = None
    parent: UUID | None = None
    unit: str | None = None
    rollout: str | None = None
    stage: str = "live"
    arm: str = "control"
    snapshot: str
    update_seq: int = 0
    spec_hash: bytes
    feature_hash: bytes
    context: Any
    eligible: list[str] | None = None
    distribution: list[float]
    action: str
    p: float | None
    p_kind: str
    x: Sequence[float] | None = None
    key: str | None = None
    features: Sequence[float] | None = None
    u: float | None = None
    degraded: bool = False
    weight: float = 1.0
    idempotency_key: str | None = None
    body_hash: bytes | None = None
    traceparent: str | None = None
    at: datetime
    window_ends: datetime
    links: Any = None
    steps: Any = None


class IdempotencyConflict(NamedTuple):
    """Row that was not written, because its idempotency key or id already exists.

    Attributes:
        earlier: the decision with that key; the row's own id if a client used it twice.
        body_hash: hash of that decision's request; None for a duplicate id.
    """

    earlier: UUID
    body_hash: bytes | None


async def connect_writer(database: Database) -> Connection[Any]:
    """Return a connection of role app that encodes decisions fast.

    Raises:
        StoreError: the database is unreachable.
    """
    connection = await database.connect("app")
    fields = DecisionRow.__struct_fields__
    await bulk_encoder.register(connection, "decision", fields, repeated=REPEATED_COLUMNS)
    return connection


async def log_decisions(
    connection: Any, rows: Sequence[DecisionRow], *, settling: Collection[UUID] = ()
) -> dict[UUID, IdempotencyConflict]:
    """Write decisions of any tenants in one transaction, all or none.

    Existing ids are skipped, so a batch can be written again after an unknown result. If a client
    made the id and another decision has it, the row is reported.

    Args:
        settling: ids whose reward is due at the end of the window in any case: the
            declaration has a default reward, or credits whole episodes.
    """
    batch = sorted(rows, key=_order)
    taken = await connection.fetch(
        "SELECT asked, earlier, earlier_hash FROM log_decisions($1, $2, $3, $4, $5)",
        [msgspec.structs.astuple(row) for row in batch],
        *slices([row.tenant for row in batch]),
        list(settling),
    )
    return {asked: IdempotencyConflict(earlier, body_hash) for asked, earlier, body_hash in taken}


async def find_decision(connection: Any, tenant: UUID, identifier: UUID) -> DecisionRow | None:
    """Return one decision of a tenant.

    Returns:
        The row; None if this tenant has no such decision.
    """
    async with as_tenant(connection, tenant):
        found = await connection.fetchrow("SELECT * FROM decision WHERE id = $1", identifier)
    return None if found is None else DecisionRow(**found)


def _order(row: DecisionRow) -> tuple[int, str, int]:
    # Every writer takes keys in this order: two batches with crossing keys cannot deadlock.
    return row.tenant.int, row.idempotency_key or "", row.id.int
