"""Active rollouts and open incidents of a ``steersman monitor`` frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from steersman.db.incidents import incidents_of
from steersman.db.rollouts import active_rollouts
from steersman.db.verdicts import latest_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow
    from steersman.db.verdicts import VerdictRow
    from steersman.db.window_figures import Counts, Figures

_MOST_INCIDENTS = 5


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of a plan.

    Attributes:
        stage: shadow, canary, ab or live.
        share: share of units that the candidate serves.
        min_units: minimum units of each arm.
        min_s: minimum duration, in seconds.
    """

    stage: str
    share: float
    min_units: int
    min_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of both arms in the last verdict.

    Attributes:
        control: mean over control's units.
        candidate: mean over the candidate's units.
        low: lower end of the interval of candidate minus control.
        high: upper end of that interval.
        units: units of the smaller arm.
        margin: tolerated loss of the candidate, 0 or more.
        better: higher or lower.
    """

    metric: str
    control: float | None
    candidate: float | None
    low: float | None
    high: float | None
    units: int
    margin: float = 0.0
    better: str = "higher"


@dataclass(frozen=True, slots=True)
class VerdictView:
    """The last verdict.

    Attributes:
        verdict: promote, hold, roll_back or not_enough_data.
        acted: action taken.
        age_s: seconds since the verdict.
        reasons: sentences for people.
        units: minimum over the arms of closed units in the judged step; in shadow, decisions.
    """

    verdict: str
    acted: str
    age_s: float
    reasons: tuple[str, ...]
    units: int
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, slots=True)
class RolloutView:
    """State of one active rollout.

    Attributes:
        status: running or paused.
        stage: shadow, canary, ab or live.
        step: index of the current step.
        share: share of units that the candidate serves.
        candidate: version of the candidate.
        control: version of control.
        control_seq: number of updates applied to control.
        age_s: seconds since the start of the rollout.
        step_age_s: seconds since the start of the step.
        controller: name of its controller; empty: none yet.
        controller_seen_s: seconds since the controller's last heartbeat.
        reason: reason of the current status.
        arms: figures of the window by arm.
        verdict: the last verdict; None: no verdict yet.
    """

    id: str
    skill: str
    decision: str
    status: str
    stage: str
    step: int
    share: float
    steps: tuple[StepView, ...]
    candidate: str
    control: str
    control_seq: int
    age_s: float
    step_age_s: float
    controller: str
    controller_seen_s: float
    reason: str
    arms: Mapping[str, Figures] = field(default_factory=dict)
    verdict: VerdictView | None = None


@dataclass(frozen=True, slots=True)
class IncidentView:
    """An open incident.

    Attributes:
        kind: a word for programs.
        summary: one sentence.
        age_s: seconds since it was opened.
    """

    kind: str
    summary: str
    age_s: float


async def read_rollouts(
    connection: Any, tenant: UUID, now: datetime, counts: Counts
) -> tuple[list[RolloutView], list[IncidentView]]:
    """Return active rollouts and open incidents; call it inside a transaction."""
    rollouts = [
        _rollout(row, await latest_verdict(connection, tenant, row.id), now, counts)
        for row in await active_rollouts(connection, tenant)
    ]
    found = await incidents_of(connection, tenant, open_only=True, limit=_MOST_INCIDENTS)
    incidents = [IncidentView(one.kind, one.summary, age(one.at, now) or 0.0) for one in found]
    return rollouts, incidents


def _rollout(
    row: RolloutRow, verdict: VerdictRow | None, now: datetime, counts: Counts
) -> RolloutView:
    return RolloutView(
        str(row.id),
        row.skill,
        row.point,
        row.status,
        row.stage,
        row.step,
        row.share,
        tuple(
            StepView(step["name"], step["share"], step["min_units"], step["min_s"])
            for step in row.plan.get("stages", ())
        ),
        row.candidate,
        row.control,
        row.control_seq,
        age_s=age(row.started_at, now) or 0.0,
        step_age_s=age(row.step_started_at, now) or 0.0,
        controller=row.holder,
        controller_seen_s=age(row.seen_at, now) or 0.0,
        reason=row.reason,
        arms=dict(counts.arms.get(str(row.id), {})),
        verdict=None if verdict is None else _verdict(verdict, now),
    )


def _verdict(row: VerdictRow, now: datetime) -> VerdictView:
    return VerdictView(
        row.verdict,
        row.acted,
        age(row.at, now) or 0.0,
        tuple(row.reasons),
        _units(row),
        tuple(comparisons(row.inputs)),
    )


def _units(row: VerdictRow) -> int:
    seen = row.inputs.get("evidence", {})
    if row.stage == "shadow":
        return int((seen.get("shadow") or {}).get("decisions", 0))
    return int(min(seen.get("step_closed", (0,))))


def comparisons(inputs: Mapping[str, Any]) -> list[Comparison]:
    """Return the comparisons in a verdict's stored inputs.

    >>> seen = {"name": "reward", "control": 0.5, "candidate": 0.6, "low": None, "high": None}
    >>> comparisons({"compared": [{**seen, "units": 12, "margin": 0.02, "better": "higher"}]})
    [Comparison(metric='reward', control=0.5, candidate=0.6, low=None, high=None, units=12, ...)]
    """
    return [
        Comparison(
            one["name"],
            one["control"],
            one["candidate"],
            one["low"],
            one["high"],
            one["units"],
            one["margin"],
            one["better"],
        )
        for one in inputs.get("compared", ())
    ]


def age(then: datetime | None, now: datetime) -> float | None:
    """Return the seconds between two times, never below 0; None without the earlier one.

    >>> from datetime import UTC, datetime
    >>> age(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC))
    60.0
    """
    return None if then is None else max(0.0, (now - then).total_seconds())
