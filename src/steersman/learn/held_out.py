"""Whether one state decides worse than another, judged on decisions that neither has learned from.

A state that learned from a decision looks good on it, and the newer of two states has learned from
more of them. So a share of the newest units (one in ten, by a hash of their names) is held out:
what each state had learned of them is withdrawn from a copy of it, which is exact up to rounding,
since states are sums. Nothing is replayed, so it costs one look at each held-out decision, however
long the log is; and nine tenths of the new data stay in, so that the copy is judged for what the
state will be, not for what it was before the newest decisions. From trees, which are no sums,
nothing can be withdrawn: they are grown from none of these units in the first place
(`steersman.learn.selecting.apart` divides by the same hash, and keeps more of them).

On the held-out decisions both copies are evaluated off-policy: doubly robust with reward models of
the past alone, since the log is adaptive; by normalised weights where rewards have no model. The
difference gets an interval from the paired errors of each unit. Two states that hardly differ have
a very narrow one, so a loss must also be larger than a hundredth of the range of rewards before it
counts. What remains of the held-out rewards in it: later decisions were drawn by states that knew
them, which decided what was tried next, but no copy has learned them.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from steersman.errors import SteersmanError
from steersman.features import FeatureMap
from steersman.ope import LoggedData, drawn_or_another, never_drawn, suited_estimator
from steersman.policies import withdraw
from steersman.registry import off_policy_delta, weigh_whole
from steersman.spec import Mixed
from steersman.spec import Sequence as SequenceActions
from steersman.store import encode, hold_out, learned_of, offered_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy, SequencePolicy
    from steersman.registry import Whole
    from steersman.spec import DecisionPoint
    from steersman.store import HeldOut, Learned, Point

    Floats = NDArray[np.float64]

SHARE = 0.1
NEWEST = 10_000
LEVEL = 0.99
MARGIN = 0.01  # of the reward, which lies between 0 and 1: finer questions are for a rollout
_FEW = 2
_ROWS_PER_FEATURE = 5


@dataclass(slots=True, eq=False)
class Judged:
    """A state that is to be compared with another.

    Attributes:
        spec: the declaration that it was learned under.
        policy: a copy of the state; what it learned of held-out decisions is taken out of it.
        snapshot: its base.
        seq: the last update that it holds; None: all there are.
    """

    spec: DecisionPoint
    policy: ChoicePolicy
    snapshot: str
    seq: int | None


@dataclass(frozen=True, slots=True)
class HeldOutReport:
    """What held-out decisions say of a state, compared with another.

    Attributes:
        against: the version it was compared with.
        decisions: that were held out.
        effective_sample_size: the smaller of both states' weights.
        value: off-policy estimate of the state's reward; None without enough evidence.
        other: of the one it was compared with.
        difference: value less other.
        low: lower end of its interval.
        high: upper end.
        level: of the interval.
        reasons: why there is no difference; empty if there is one.
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
        """Whether it is shown to be worse, by more than a hundredth of the range of rewards."""
        return self.high is not None and self.high < -MARGIN

    def to_json(self) -> dict[str, Any]:
        """Return plain values, to be signed with a snapshot."""
        return {**asdict(self), "reasons": list(self.reasons)}


async def compare(
    connection: Any,
    point: Point,
    new: Judged,
    old: Judged,
    *,
    level: float = LEVEL,
    share: float = SHARE,
    newest: int = NEWEST,
) -> HeldOutReport:
    """Return whether a state decides worse than another; too little evidence is said, not raised.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        new: the state in question; its policy is changed.
        old: what it is compared with; likewise.
        level: of the interval, in (0, 1). The default leaves one false alarm in two hundred looks.
        share: of units that are held out, in (0, 1].
        newest: decisions among which they are looked for.

    Returns:
        The difference with its interval, or why there is none.
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
    states: tuple[Judged, Judged],
    learned: Sequence[dict[Any, Learned]],
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


def forget(policy: ChoicePolicy, learned: Iterable[Learned]) -> None:
    """Take what a policy learned of some decisions out of it.

    Args:
        policy: changed in place.
        learned: as the state holds them.

    Raises:
        InputError: the policy takes nothing back.
    """
    for one in learned:
        if one.value is not None:
            x: Any = one.key if one.x is None else np.array(one.x, dtype=np.float64)
            withdraw(policy, x, one.action, one.value, weight=one.weight, bucket=one.bucket)


def _without(report: HeldOutReport, *reasons: str) -> HeldOutReport:
    return replace(report, reasons=reasons)


def _measured(
    report: HeldOutReport, rows: Sequence[HeldOut], states: tuple[Judged, Judged]
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


class _Decided(NamedTuple):
    """What a state would have done, in columns that are the same for every state."""

    places: list[int]
    target: Floats
    contexts: list[Floats | None]
    missing: Floats | None = None
    names: NDArray[Any] | None = None  # of what was drawn, where columns are places in a request


def _decided(rows: Sequence[HeldOut], state: Judged, every: Sequence[str]) -> _Decided:
    if isinstance(state.spec.actions, SequenceActions):
        whole = [_whole(row, state) for row in rows]
        masses, missing = (np.array(column) for column in zip(*whole, strict=True))
        return _Decided([0] * len(rows), drawn_or_another(masses), [None] * len(rows), missing)
    features = FeatureMap(state.spec.context)
    found = [_distribution(row, state, features) for row in rows]
    contexts = [x for _, _, x in found]
    if isinstance(state.spec.actions, Mixed):  # of which there are thousands
        known = _places(state.policy.actions)
        drawn = [  # what has been barred since would never be drawn
            float(distribution[known[row.action]]) if row.action in known else 0.0
            for row, (_, distribution, _) in zip(rows, found, strict=True)
        ]
        return _Decided([0] * len(rows), drawn_or_another(drawn), [None] * len(rows))
    shared = _places(every)
    columns = [shared or _places(row.eligible or ()) for row in rows]
    target = np.zeros((len(rows), max(map(len, columns))))
    for place, (names, distribution, _) in enumerate(found):
        target[place, [columns[place][name] for name in names]] = distribution
    places = [column[row.action] for row, column in zip(rows, columns, strict=True)]
    if every:
        return _Decided(places, target, contexts, never_drawn(places, target))
    return _Decided(places, target, contexts, names=np.array([row.action for row in rows]))


def _whole(row: HeldOut, state: Judged) -> Whole:
    offered = offered_of(row.eligible, row.links, row.features)
    return weigh_whole(cast("SequencePolicy", state.policy), offered, row.steps)


def _places(names: Sequence[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _every(rows: Sequence[HeldOut], states: Iterable[Judged]) -> Sequence[str]:
    """Return all arms that a declaration knows or the log holds; none for open candidates.

    An arm that was taken out since is still in the log: whoever lacks it draws it never.
    """
    declared = [state.spec.actions for state in states]
    if any(getattr(actions, "open", False) for actions in declared):
        return ()
    names = {name for actions in declared for name in getattr(actions, "names", ())}
    return sorted(names | {row.action for row in rows})


def _distribution(
    row: HeldOut, state: Judged, features: FeatureMap
) -> tuple[Sequence[str], Floats, Floats | None]:
    x, key = encode(state.spec, features, row.context)
    seen: Any = x if x is not None else key if key is not None else row.context
    names: Sequence[str] = state.policy.actions or row.eligible or ()
    eligible, per_action = row.eligible, None
    if row.features is not None and state.spec.policy.algorithm.startswith("joint_"):
        asked = len(row.eligible or names)
        per_action = np.asarray(row.features, dtype=np.float64).reshape(asked, -1)
    if eligible is not None and not isinstance(state.spec.actions, Mixed):
        known = [place for place, name in enumerate(eligible) if name in names]
        eligible = [eligible[place] for place in known]
        per_action = None if per_action is None else per_action[known]
    distribution = state.policy.distribution(seen, eligible=eligible, features=per_action)
    return names, distribution, x
