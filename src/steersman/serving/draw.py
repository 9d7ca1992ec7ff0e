"""Draw of an action and its row, without I/O.

The policy sees the float32-rounded vector that is stored and learned from. The propensity is the
float64 entry that the draw used. If the policy fails, the declared fallback answers with
probability 1, `degraded` and weight 0, so that it is never learned from.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from steersman.db.decisions import LoggedDistribution
from steersman.errors import ActionError, InputError, StateError
from steersman.points.algorithms import BUILT_IN
from steersman.points.feature_encoding import as_stored, encode, encode_rows, rounded
from steersman.policies.configurations import Configurations
from steersman.policies.linear import decide_alike
from steersman.privacy.declared_scrub import scrubbing_of
from steersman.serving.draw_sequence import draw_selection, first_candidates
from steersman.serving.pending_decision import PendingDecision
from steersman.spec.actions import Mixed
from steersman.spec.actions import Sequence as SequenceActions
from steersman.spec.expressions import compile_rule
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.learning.replica import Replica
    from steersman.policies import Choice
    from steersman.serving.arms import Arms
    from steersman.serving.pending_decision import Drawn, PointRequest
    from steersman.wire import DecideRequest

    Asked: TypeAlias = Sequence[tuple["ServedPoint", PointRequest]]

GUARDIAN = "guardian_state"
_FIRST = "first"
_ROUNDING = 1e-6  # of a sum of probabilities
_TOGETHER = 256  # contexts per matrix; larger ones are not faster and need more memory


class ServedPoint:
    """Served decision point: its replica and derived data for requests.

    Args:
        replica: policy state that updates are applied to.
    """

    arms: Arms[ServedPoint] | None = None
    """Active rollout, if this is its control."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.spec = replica.row.spec
        self.open: bool = getattr(self.spec.actions, "open", False)
        self.names: tuple[str, ...] = tuple(getattr(self.spec.actions, "names", ()))
        self.logged = LoggedDistribution(self.spec.actions)
        self.feature_count = len(getattr(self.spec.actions, "features", ()))
        self.selects = isinstance(self.spec.actions, SequenceActions)
        self.wants_guardian = GUARDIAN in self.spec.context.fields
        self.reads_vector = self.spec.policy.reads == "vector"
        self.is_installed = self.spec.policy.algorithm not in BUILT_IN
        self.scrubbing = scrubbing_of(self.spec)
        reward = self.spec.reward
        self.window = timedelta(seconds=reward.window_s)
        self.settles = reward.missing != "drop" or reward.scope == "episode"
        self.deadline_s = self.spec.budgets.deadline_ms / 1000
        declared = self.spec.fallback
        self._rules = [(compile_rule(it.when), self._target(it.action)) for it in declared.rules]
        self._otherwise = self._target(declared.otherwise)
        self._configurations: Configurations | None = None

    def _target(self, action: Any) -> str:
        mixed = self.spec.actions
        return mixed.name_of(action) if isinstance(mixed, Mixed) else str(action)

    @property
    def likeness(self) -> Hashable:
        """Group key: requests of points with equal keys can be drawn together.

        Equal keys mean equal encodings of contexts. Other points have a unique key.
        """
        row, policy = self.replica.row, self.replica.policy.likeness
        return self if policy is None else (row.spec_hash, row.feature_hash, policy)

    def fall_back(self, context: Mapping[str, Any], eligible: Sequence[str] | None) -> str:
        """Return the fallback's action.

        Args:
            eligible: eligible actions; None or empty: all declared actions.

        Raises:
            Refused: the fallback needs a first candidate, and the request has none.
        """
        if isinstance(self.spec.actions, SequenceActions):
            return first_candidates(eligible, self.spec.actions)
        names = self._allowed(eligible) if eligible else self.names
        for holds, action in self._rules:
            target = names[0] if names and action == _FIRST and self.open else action
            if (not names or target in names) and _holds(holds, context):
                return target if names else self._named(target)
        if names and (self._otherwise not in names):
            return names[0]
        return self._named(self._otherwise)

    def _named(self, action: str) -> str:
        if self.open and action == _FIRST:
            detail = "no candidates; give one or more in eligible"
            raise Refused.of("invalid", detail, field="eligible")
        return action

    def _allowed(self, eligible: Sequence[str]) -> Sequence[str]:
        """Return the eligible actions, which may be named by parts; all if invalid."""
        if not isinstance(self.spec.actions, Mixed):
            return eligible
        if self._configurations is None:
            self._configurations = Configurations(self.names)
        allowed = np.zeros(len(self.names), dtype=np.bool_)
        for name in eligible:
            with suppress(ActionError):
                allowed |= self._configurations.with_values(name)
        return [self.names[place] for place in np.flatnonzero(allowed)] or self.names


def draw_many(asked: Asked, rng: np.random.Generator) -> list[Drawn]:
    """Return the policy's decision for each request, drawn together where possible."""
    results: dict[int, Drawn] = {}
    together: dict[ServedPoint, list[int]] = {}
    for place, (served, one) in enumerate(asked):
        if served.reads_vector and one.request.eligible is None and one.request.links is None:
            together.setdefault(served, []).append(place)
        else:
            results[place] = _draw_or_error(served, one, rng)
    alike: dict[Hashable, list[int]] = {}
    for served, places in together.items():
        alike.setdefault(served.likeness, []).extend(places)
    for places in alike.values():
        for start in range(0, len(places), _TOGETHER):
            some = places[start : start + _TOGETHER]
            found = _draw_alike([asked[place] for place in some], rng)
            results.update(zip(some, found, strict=True))
    return [results[place] for place in range(len(asked))]


def _draw_alike(asked: Asked, rng: np.random.Generator) -> Sequence[Drawn]:
    """Return draws of similar points; the requests of one point are adjacent."""
    if len(asked) > 1:  # for one request it is 50 % slower
        # Separate draws, per point and then per request, locate the failing request.
        with suppress(Exception):
            return _draw_together(asked, rng)
        points = [list(own) for _, own in groupby(asked, itemgetter(0))]
        if len(points) > 1:
            return [drawn for own in points for drawn in _draw_alike(own, rng)]
    return [_draw_or_error(*one, rng) for one in asked]


def _draw_together(asked: Asked, rng: np.random.Generator) -> list[Drawn]:
    """Return draws over all declared actions, for policies that read vectors."""
    first = asked[0][0]
    rows = encode_rows(first.replica.features, [one.context for _, one in asked])
    vectors, parts = rows.astype(np.float64), []
    for point, own in groupby([point for point, _ in asked]):
        count = len(list(own))
        parts.append((point.replica.policy, vectors[:count]))
        vectors = vectors[count:]
    choices = decide_alike(parts, rng=rng)
    if first.is_installed:
        for choice in choices:
            _check(choice, first)
    stored = first.logged.of_many([choice.distribution for choice in choices])
    return [
        PendingDecision(one, served, it.action, it.propensity, distribution, x=as_stored(x), u=it.u)
        for (served, one), it, distribution, x in zip(asked, choices, stored, rows, strict=True)
    ]


def _draw_or_error(served: ServedPoint, asked: PointRequest, rng: np.random.Generator) -> Drawn:
    try:
        return _draw(served, asked, rng)
    except Exception as error:  # noqa: BLE001 (fails one request only)
        return error


def _draw(served: ServedPoint, asked: PointRequest, rng: np.random.Generator) -> PendingDecision:
    if served.selects:
        return draw_selection(served, asked, rng)
    request, context = asked.request, asked.context
    if request.links is not None:
        raise Refused.of(
            "invalid", "links are allowed only for decision points of kind sequence", field="links"
        )
    eligible = request.eligible
    if eligible is not None and not eligible:
        return fall_back(served, asked)
    try:
        x, key = encode(served.spec, served.replica.features, context)
    except InputError as error:
        raise Refused.of("invalid", str(error), field="context") from None
    rows = _feature_rows(served, request)
    seen: Any = x if x is not None else key if key is not None else context
    try:
        choice = served.replica.policy.decide(seen, rng=rng, eligible=eligible, features=rows)
    except ActionError as error:
        raise Refused.of("invalid", str(error), field="eligible") from None
    except InputError as error:
        raise Refused.of("invalid", str(error)) from None
    if served.is_installed:
        _check(choice, served)
    if rows is not None:
        x = rows[list(eligible or served.names).index(choice.action)]
    return PendingDecision(
        asked,
        served,
        choice.action,
        choice.propensity,
        served.logged.of(choice.distribution).tolist(),
        eligible=eligible,
        x=None if x is None else as_stored(x),
        key=key,
        features=None if rows is None else as_stored(rows),
        u=choice.u,
    )


def _check(choice: Choice, served: ServedPoint) -> None:
    """Raise an error if the distribution of an installed policy is not one.

    Raises:
        StateError: its propensity would be wrong in the log.
    """
    distribution = np.asarray(choice.distribution, np.float64)
    valid = np.isfinite(distribution).all() and (distribution >= 0.0).all()
    total = float(distribution.sum())
    if not (valid and abs(total - 1.0) <= _ROUNDING and 0.0 < choice.propensity <= 1.0):
        raise StateError(
            f"policy {served.spec.policy.algorithm!r} returned probabilities with sum {total:g} "
            f"and propensity {choice.propensity:g}; allowed are finite numbers from 0 to 1 with "
            "sum 1; correct `_score` and run `steersman.testing.check_policy`"
        )


def fall_back(served: ServedPoint, asked: PointRequest) -> PendingDecision:
    """Return the declared fallback's answer: probability 1 for one action, marked as degraded.

    The distribution covers that action only.
    """
    action = served.fall_back(asked.context, asked.request.eligible)
    return PendingDecision(
        asked,
        served,
        action,
        1.0,
        [1.0],
        p_kind="fallback",
        eligible=[action],
        degraded=True,
        weight=0.0,
    )


def _feature_rows(served: ServedPoint, request: DecideRequest) -> NDArray[np.float64] | None:
    """Return (n, d) features of the eligible actions in their order, rounded as stored."""
    if not served.feature_count:
        if request.features is not None:
            raise Refused.of(
                "invalid",
                "this decision point declares no features; leave features out",
                field="features",
            )
        return None
    names = request.eligible or served.names
    given = request.features or {}
    missing = [name for name in names if name not in given]
    if missing:
        detail = f"missing features for {missing[:3]}; give {served.feature_count} numbers for each"
        raise Refused.of("invalid", detail, field="features")
    wrong = [name for name in names if len(given[name]) != served.feature_count]
    if wrong:
        detail = f"{wrong[0]!r} has {len(given[wrong[0]])} features; expected "
        raise Refused.of("invalid", f"{detail}{served.feature_count}", field="features")
    try:
        return rounded([given[name] for name in names])
    except InputError as error:
        raise Refused.of("invalid", str(error), field="features") from None


def _holds(rule: Any, context: Mapping[str, Any]) -> bool:
    try:
        return bool(rule(context))
    except InputError:
        return False  # a rule that fails on this context does not match
