"""Reader of a rollout's decisions after their reward windows have closed.

Rows are read in time ranges. Each range starts a little before the end of the last one and skips
known rows, so that a row committed late is not missed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from steersman.db.logged_choices import shadow_choices
from steersman.db.rollout_decisions import closed_decisions, count_closed, last_decided
from steersman.errors import SteersmanError
from steersman.learning.credit import credit_of
from steersman.learning.reward_inputs import read_evidence
from steersman.rollouts.plan import RolloutPlan
from steersman.rollouts.units import AnalysedDecision, place, position

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from steersman.db.logged_choices import LoggedChoice
    from steersman.db.points import PointRow
    from steersman.db.rewards import RewardDecision
    from steersman.db.rollout_decisions import ClosedDecision
    from steersman.db.rollouts import RolloutRow
    from steersman.learning.reward_inputs import Evidence
    from steersman.rollouts.units import Arm, Placement

_LATE = timedelta(seconds=60)
_TICK = timedelta(seconds=1)
_PAGE = 1_000
_MOST_PAGES = 20


class ClosedDecisions(NamedTuple):
    """Decisions of a rollout with closed windows.

    Attributes:
        observed: analysed decisions in time order.
        misplaced: number of decisions served by an arm other than the plan's.
        behind: whether more decisions remain for the next call.
    """

    observed: list[AnalysedDecision]
    misplaced: int
    behind: bool


@dataclass(slots=True)
class ReadPosition:
    """Read position in a rollout.

    Attributes:
        closed_until: windows that closed earlier are read, except for late commits.
        seen: recent ids with the times at which their windows closed, oldest first.
        ids: the same ids, for lookup.
        page: last row read, while the same time range has more.
    """

    closed_until: datetime | None = None
    seen: deque[tuple[datetime, UUID]] = field(default_factory=deque)
    ids: set[UUID] = field(default_factory=set)
    page: tuple[datetime, UUID] | None = None

    def remember(self, closes: datetime, identifier: UUID) -> bool:
        """Return whether a row is new, and mark it as seen."""
        if identifier in self.ids:
            return False
        self.ids.add(identifier)
        self.seen.append((closes, identifier))
        return True

    def advance(self, closed: datetime) -> None:
        """Record that all windows that closed before a time are read."""
        self.closed_until = max(closed, self.closed_until or closed)
        while self.seen and self.seen[0][0] < self.closed_until - _LATE:
            self.ids.discard(self.seen.popleft()[1])


async def observe(
    connection: Any, row: RolloutRow, point: PointRow, gathering: ReadPosition, closed: datetime
) -> ClosedDecisions:
    """Return the decisions of both arms whose windows closed since the last call.

    Erased decisions, decisions with ``action_taken`` and units outside the analysis are excluded.
    """
    since = None if gathering.closed_until is None else gathering.closed_until - _LATE
    if since is not None and await _nothing_late(connection, row, point, gathering, since):
        since = gathering.closed_until
    observed: list[AnalysedDecision] = []
    misplaced, behind = 0, True
    for _ in range(_MOST_PAGES):
        ids = _first_id(row.started_at, since, point), _end(point, closed)
        rows = await closed_decisions(
            connection, row, since, closed, ids=ids, after=gathering.page, limit=_PAGE
        )
        new = [one for one in rows if gathering.remember(one.window_ends, one.id)]
        if new:
            more, wrong = await _credited(connection, row, point, new)
            observed += more
            misplaced += wrong
        if len(rows) < _PAGE:
            behind, gathering.page = False, None
            gathering.advance(closed)
            break
        gathering.page = rows[-1].window_ends, rows[-1].id
    return ClosedDecisions(
        sorted(observed, key=lambda seen: (seen.at, seen.unit)), misplaced, behind
    )


async def shadowed(
    connection: Any, row: RolloutRow, gathering: ReadPosition, until: datetime, *, limit: int = 500
) -> list[LoggedChoice]:
    """Return new decisions of the stage shadow in time order, without rewards."""
    since = None if gathering.closed_until is None else gathering.closed_until - _LATE
    rows = await shadow_choices(
        connection,
        row,
        until=until,
        since=since,
        first=_first_id(row.started_at, since, None),
        without=list(gathering.ids),
        limit=limit,
    )
    new = [choice for at, choice in rows if gathering.remember(at, choice.id)]
    gathering.advance(rows[-1][0] if len(rows) == limit else until)
    return new


async def last_decision_at(
    connection: Any, row: RolloutRow, known: datetime | None
) -> datetime | None:
    """Return the time of a rollout's last decision; None without decisions."""
    last = await last_decided(connection, row, first_id(known or row.started_at - _LATE))
    return max((at for at in (known, last) if at is not None), default=None)


async def _credited(
    connection: Any, row: RolloutRow, point: PointRow, rows: Sequence[ClosedDecision]
) -> tuple[list[AnalysedDecision], int]:
    evidence = await read_evidence(connection, point, row.candidate, [one.id for one in rows])
    arms = _Arms(row)
    observed, misplaced = [], 0
    for one in rows:
        decided = evidence.decisions.get(one.id)
        placed = arms.of(one.unit, one.stage)
        if decided is None or decided.barred or (one.stage == "live" and not placed.analysed):
            continue
        if not placed.analysed or (placed.arm == "control" and one.arm == "candidate"):
            misplaced += 1
            continue
        fallen = placed.arm == "candidate" and one.arm == "control"
        seen = _observed(point, evidence, decided, one.unit, placed.arm, arms.outcomes)
        if seen is not None:
            observed.append(seen._replace(failed=decided.degraded or fallen))
    return observed, misplaced


async def _nothing_late(
    connection: Any, row: RolloutRow, point: PointRow, gathering: ReadPosition, since: datetime
) -> bool:
    """Return whether no late row is unread; counting is faster than reading again."""
    if gathering.page is not None or gathering.closed_until is None:
        return False
    until = gathering.closed_until
    ids = _first_id(row.started_at, since, point), _end(point, until)
    found = await count_closed(connection, row, since, until, ids=ids)
    # `seen` may contain a late row behind younger ones that is now before `since`.
    return found == sum(closes >= since for closes, _ in gathering.seen)


class _Arms:
    """Planned arm of each unit, in every stage of a rollout."""

    def __init__(self, row: RolloutRow) -> None:
        plan = RolloutPlan.from_json(row.plan)
        self._salt = row.salt
        self._holdback = plan.holdback
        self._shares = {
            stage.name: stage.share for stage in plan.stages
        }  # the largest share per stage name
        named = {one.outcome for one in plan.guardrails if one.outcome is not None}
        self.outcomes = ["error", *sorted(named - {"error"})]

    def of(self, unit: str, stage: Any) -> Placement:
        share = min(self._shares.get(stage, 0.0), 0.5)  # at live the holdback decides
        return place(position(self._salt, unit), stage, share, self._holdback)


def _observed(
    point: PointRow,
    evidence: Evidence,
    decided: RewardDecision,
    unit: str,
    arm: Arm,
    read: Sequence[str],
) -> AnalysedDecision | None:
    """Return the result of a decision; None if the application took another action."""
    events = evidence.about(decided)
    closes = decided.window_ends
    try:
        # The current declaration for both arms, so that their rewards are comparable.
        credit = credit_of(point.spec, decided, events, now=closes.timestamp())
    except SteersmanError:
        reward = None  # an outcome that is not a number counts as missing, as for the learner
    else:
        if credit.status == "withdrawn":
            return None
        reward = credit.value
    latest = events.told(read, closes.timestamp())
    outcomes = {name: value for name, (value, _) in latest.items()}
    return AnalysedDecision(unit, arm, decided.at.timestamp(), reward, outcomes)


def _first_id(started: datetime, since: datetime | None, point: PointRow | None) -> UUID:
    """Return an id bound that lets the planner skip partitions that are read."""
    if since is None:
        return first_id(started - _LATE)  # other machines' clocks may be behind
    window_s = 0.0 if point is None else point.spec.reward.window_s
    return first_id(max(started - _LATE, since - timedelta(seconds=window_s)))


def _end(point: PointRow, closed: datetime) -> UUID:
    """Return an id after all decisions with closed windows."""
    return first_id(closed - timedelta(seconds=point.spec.reward.window_s), later=True)


def first_id(moment: datetime, *, later: bool = False) -> UUID:
    """Return an id before all decisions made from a time on.

    >>> from datetime import UTC, datetime
    >>> first_id(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)).hex[:12]
    '019b76daa800'
    """
    moment += _TICK if later else -_TICK
    return UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)
