"""Held-out comparison of two states, on decisions that neither has learned from.

An evaluation on learned decisions favours the newer state, which learned from more of them. So one
tenth of the newest units (by a hash of their names) is held out. Copies of both states withdraw
what they learned from these units. States are sums, so this is exact up to rounding. The cost
depends on the number of held-out decisions only. Trees are not sums; they must be trained without
these units (see `steersman.db.held_out.is_held_out`).

Both copies are evaluated off-policy on the held-out decisions. The estimator is doubly robust, with
reward models fitted on the past only, because the log is adaptive; without a reward model it uses
normalised weights. The confidence interval of the difference comes from paired errors per unit. Two
similar states have a very narrow interval, so a loss counts only above 1 % of the reward range.
One dependence remains: later logging states had learned the held-out rewards.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from steersman.db.decisions import offered_of
from steersman.db.held_out import hold_out
from steersman.db.rewards import learned_of
from steersman.errors import SteersmanError
from steersman.features import FeatureMap
from steersman.ope import LoggedData, drawn_or_another, never_drawn, suited_estimator
from steersman.ope.paired import off_policy_delta
from steersman.points.feature_encoding import encode
from steersman.policies.sequential import weigh_whole
from steersman.policies.undo import withdraw
from steersman.spec.actions import Mixed
from steersman.spec.actions import Sequence as SequenceActions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from steersman.db.held_out import HeldOut
    from steersman.db.rewards import CreditedUpdate
    from steersman.db.work_queue import Point
    from steersman.policies import ChoicePolicy
    from steersman.policies.sequential import SequencePolicy, Whole
    from steersman.spec.point import DecisionPoint

    Floats = NDArray[np.float64]

SHARE = 0.1
NEWEST = 10_000
LEVEL = 0.99
MARGIN = 0.01  # reward in [0, 1]; a rollout detects smaller losses
_FEW = 2
_ROWS_PER_FEATURE = 5


@dataclass(slots=True, eq=False)
class ComparedState:
    """State to compare.

    Attributes:
        spec: declaration under which it learned.
        policy: copy of the state; the comparison changes it.
        snapshot: its base snapshot.
        seq: last update in the state; None for all.
    """

    spec: DecisionPoint
    policy: ChoicePolicy
    snapshot: str
    seq: int | None


@dataclass(frozen=True, slots=True)
class HeldOutReport:
    """Result of a held-out comparison.

    Attributes:
        against: the version compared with.
        decisions: number of held-out decisions.
        effective_sample_size: the smaller one of the two states.
        value: off-policy estimate of the state's reward; None with too little evidence.
        other: estimate of the version compared with.
        difference: value minus other.
        low: lower end of the confidence interval.
        high: upper end.
        level: confidence level.
        reasons: why the difference is None; empty otherwise.
    """

    against: str
    decisions: int = 0
    effective_sample_size: float = 0.0
    value: float | None = None
    other: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    level: float = LEVEL
    reasons: tuple[str, ...] = ()

    @property
    def is_worse(self) -> bool:
        """Whether the state is shown to be worse by more than 1 % of the reward range."""
        return self.high is not None and self.high < -MARGIN

    def to_json(self) -> dict[str, Any]:
        """Return JSON values for the signed description."""
        return {**asdict(self), "reasons": list(self.reasons)}


async def compare(
    connection: Any,
    point: Point,
    new: ComparedState,
    old: ComparedState,
    *,
    level: float = LEVEL,
    share: float = SHARE,
    newest: int = NEWEST,
) -> HeldOutReport:
    """Return the reward difference of two states; too little evidence is reported, not raised.

    Args:
        level: confidence level, in (0, 1). The default allows one false alarm in 200 checks.
        share: share of held-out units, in (0, 1].

    Returns:
        The difference with its confidence interval, or the reasons why there is none.
    """
    rows = await hold_out(connection, point, share=share, newest=newest, judged=new.spec)
    ids = [row.id for row in rows]
    learned = [
        await learned_of(connection, point, one.snapshot, ids, until=one.seq) if ids else {}
        for one in (new, old)
    ]
    return await asyncio.to_thread(_compare, rows, (new, old), learned, level)


def _compare(
    rows: Sequence[HeldOut],
    states: tuple[ComparedState, ComparedState],
    learned: Sequence[dict[Any, CreditedUpdate]],
    level: float,
) -> HeldOutReport:
    against = states[1].snapshot
    report = HeldOutReport(against, decisions=len(rows), level=level)
    if len(rows) < _FEW:
        why = "reward windows are still open, or the point has little data"
        return _without(report, f"{len(rows)} held-out decisions have a final reward: {why}")
    if any(state.spec.explore == "none" for state in states):
        return _without(report, "the point declares explore: none, so its log has no exploration")
    try:
        for state, known in zip(states, learned, strict=True):
            forget(state.policy, known.values())
        return _measured(report, rows, states)
    except SteersmanError as error:
        return _without(report, f"{error!s:.300}")


def forget(policy: ChoicePolicy, learned: Iterable[CreditedUpdate]) -> None:
    """Withdraw what a policy learned from some decisions.

    Raises:
        InputError: the policy cannot withdraw updates.
    """
    for one in learned:
        if one.value is not None:
            x: Any = one.key if one.x is None else np.array(one.x, dtype=np.float64)
            withdraw(policy, x, one.action, one.value, weight=one.weight, bucket=one.bucket)


def _without(report: HeldOutReport, *reasons: str) -> HeldOutReport:
    return replace(report, reasons=reasons)


def _measured(
    report: HeldOutReport, rows: Sequence[HeldOut], states: tuple[ComparedState, ComparedState]
) -> HeldOutReport:
    every = _every(rows, states)
    new, old = (_decided(rows, state, every) for state in states)
    seen = [x for x in new.contexts if x is not None]
    enough = len(seen) == len(rows) >= _ROWS_PER_FEATURE * max(map(len, seen), default=0)
    logs = [
        LoggedData(
            actions=np.array(new.places),
            rewards=np.array([row.reward for row in rows]),
            propensities=np.array([row.p for row in rows]),
            target=one.target,
            contexts=np.array(seen) if enough and seen else None,
            clusters=np.array([row.unit for row in rows]),
            missing=one.missing,
            names=one.names,
        )
        for one in (old, new)
    ]
    estimator = suited_estimator(logs[0])
    found = off_policy_delta(*logs, estimator=estimator, adaptive=True, level=report.level)
    values = found.values or (None, None)
    return replace(
        report,
        effective_sample_size=min(found.ess),
        other=values[0],
        value=values[1],
        difference=found.delta,
        low=found.low,
        high=found.high,
        reasons=found.reasons,
    )


class _DecisionColumns(NamedTuple):
    """Decisions of a state as columns that are equal for both states."""

    places: list[int]
    target: Floats
    contexts: list[Floats | None]
    missing: Floats | None = None
    names: NDArray[Any] | None = None  # drawn actions, if columns are positions in a request


def _decided(
    rows: Sequence[HeldOut], state: ComparedState, every: Sequence[str]
) -> _DecisionColumns:
    if isinstance(state.spec.actions, SequenceActions):
        whole = [_whole(row, state) for row in rows]
        masses, missing = (np.array(column) for column in zip(*whole, strict=True))
        return _DecisionColumns(
            [0] * len(rows), drawn_or_another(masses), [None] * len(rows), missing
        )
    features = FeatureMap(state.spec.context)
    found = [_distribution(row, state, features) for row in rows]
    contexts = [x for _, _, x in found]
    if isinstance(state.spec.actions, Mixed):  # too many actions for a matrix
        known = _places(state.policy.actions)
        drawn = [  # a removed action has probability 0
            float(distribution[known[row.action]]) if row.action in known else 0.0
            for row, (_, distribution, _) in zip(rows, found, strict=True)
        ]
        return _DecisionColumns([0] * len(rows), drawn_or_another(drawn), [None] * len(rows))
    shared = _places(every)
    columns = [shared or _places(row.eligible or ()) for row in rows]
    target = np.zeros((len(rows), max(map(len, columns))))
    for place, (names, distribution, _) in enumerate(found):
        target[place, [columns[place][name] for name in names]] = distribution
    places = [column[row.action] for row, column in zip(rows, columns, strict=True)]
    if every:
        return _DecisionColumns(places, target, contexts, never_drawn(places, target))
    return _DecisionColumns(places, target, contexts, names=np.array([row.action for row in rows]))


def _whole(row: HeldOut, state: ComparedState) -> Whole:
    offered = offered_of(row.eligible, row.links, row.features)
    return weigh_whole(cast("SequencePolicy", state.policy), offered, row.steps)


def _places(names: Sequence[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _every(rows: Sequence[HeldOut], states: Iterable[ComparedState]) -> Sequence[str]:
    """Return all arms in the declaration or the log; none for open candidates.

    The log may contain removed arms. A state without such an arm has probability 0 for it.
    """
    declared = [state.spec.actions for state in states]
    if any(getattr(actions, "open", False) for actions in declared):
        return ()
    names = {name for actions in declared for name in getattr(actions, "names", ())}
    return sorted(names | {row.action for row in rows})


def _distribution(
    row: HeldOut, state: ComparedState, features: FeatureMap
) -> tuple[Sequence[str], Floats, Floats | None]:
    x, key = encode(state.spec, features, row.context)
    seen: Any = x if x is not None else key if key is not None else row.context
    names: Sequence[str] = state.policy.actions or row.eligible or ()
    eligible, per_action = row.eligible, None
    if row.features is not None and state.spec.policy.reads == "action_features":
        asked = len(row.eligible or names)
        per_action = np.asarray(row.features, dtype=np.float64).reshape(asked, -1)
    if eligible is not None and not isinstance(state.spec.actions, Mixed):
        known = [place for place, name in enumerate(eligible) if name in names]
        eligible = [eligible[place] for place in known]
        per_action = None if per_action is None else per_action[known]
    distribution = state.policy.distribution(seen, eligible=eligible, features=per_action)
    return names, distribution, x
