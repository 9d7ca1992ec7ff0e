"""Verdict rows of a rollout: verdict, inputs and action taken.

Verdicts are numbered without gaps and never change, so a recomputation sees all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from steersman.db.rollout_transitions import fence_rollout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow, StageName

Verdict = Literal["promote", "hold", "roll_back", "not_enough_data"]
Acted = Literal["none", "next_stage", "promoted", "rolled_back", "held"]
_COLUMNS = "seq, at, stage, step, share, verdict, acted, inputs, reasons"


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """Verdict with all its inputs.

    Attributes:
        seq: number within its rollout: 1, 2, 3, …
        at: time of the verdict.
        stage: judged stage.
        step: judged step.
        share: judged share.
        verdict: promote, hold, roll_back or not_enough_data.
        acted: none, next_stage, promoted, rolled_back or held.
        inputs: all numbers needed to recompute it.
        reasons: explanation for operators.
    """

    seq: int
    at: datetime
    stage: StageName
    step: int
    share: float
    verdict: Verdict
    acted: Acted
    inputs: dict[str, Any]
    reasons: list[str]


async def add_verdict(
    connection: Any,
    row: RolloutRow,
    epoch: int,
    *,
    at: datetime,
    verdict: Verdict,
    acted: Acted,
    inputs: Mapping[str, Any],
    reasons: Sequence[str],
) -> VerdictRow:
    """Record a verdict in the transaction that acts on it.

    Args:
        acted: none, next_stage, promoted, rolled_back or held.

    Raises:
        FencedError: another process claimed the rollout; nothing was written.
    """
    await fence_rollout(connection, row, epoch)
    written = await connection.fetchrow(
        "INSERT INTO verdict (tenant, rollout, seq, at, stage, step, share, verdict, acted, "  # noqa: S608 (constants)
        "inputs, reasons) SELECT $1, $2, coalesce(max(seq), 0) + 1, $3, $4, $5, $6, $7, $8, $9, "
        f"$10 FROM verdict WHERE tenant = $1 AND rollout = $2 RETURNING {_COLUMNS}",
        *(row.tenant, row.id, at, row.stage, row.step, row.share, verdict, acted),
        *(dict(inputs), list(reasons)),
    )
    return VerdictRow(*written)


async def verdicts_of(
    connection: Any, tenant: UUID, rollout: UUID, *, after: int = 0, limit: int = 1000
) -> list[VerdictRow]:
    """Return the verdicts of a rollout, in order.

    Returns:
        At most ``limit`` rows; none if this tenant has no such rollout.
    """
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM verdict WHERE tenant = $1 AND rollout = $2 AND seq > $3 "  # noqa: S608 (constants)
        "ORDER BY seq LIMIT $4",
        *(tenant, rollout, after, limit),
    )
    return [VerdictRow(*row) for row in rows]


async def held_since(connection: Any, tenant: UUID, rollout: UUID) -> datetime | None:
    """Return the time of the first verdict since which all say hold; None without any."""
    since: datetime | None = await connection.fetchval(
        "SELECT min(at) FROM verdict WHERE tenant = $1 AND rollout = $2 AND seq > coalesce("
        "(SELECT max(seq) FROM verdict WHERE tenant = $1 AND rollout = $2 "
        "AND verdict <> 'hold'), 0)",
        *(tenant, rollout),
    )
    return since


async def latest_verdict(connection: Any, tenant: UUID, rollout: UUID) -> VerdictRow | None:
    """Return the last verdict of a rollout.

    Returns:
        The row; None if there is none.
    """
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM verdict WHERE tenant = $1 AND rollout = $2 "  # noqa: S608 (constants)
        "ORDER BY seq DESC LIMIT 1",
        *(tenant, rollout),
    )
    return None if row is None else VerdictRow(*row)
