"""From a request to a drawn action and its row: no I/O, so that the exactness is easy to see.

The vector that decides is the float32-rounded one that is stored and learned from; the propensity
is the float64 entry that the draw used. When the policy cannot answer, the declared fallback does:
probability 1, `degraded`, weight 0, so that nothing is ever learned from it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import ActionError, InputError
from steersman.policies import Configurations, decide_alike
from steersman.service.drawn import Drawn
from steersman.service.selecting import draw_selection, first_candidates
from steersman.spec import Mixed, compile_rule
from steersman.spec import Sequence as SequenceActions
from steersman.store import (
    LoggedDistribution,
    as_stored,
    encode,
    encode_rows,
    reads_vector,
    rounded,
)
from steersman.store.scrubbing import scrubbing_of
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.learn import Replica
    from steersman.service.arms import Arms
    from steersman.wire import DecideRequest


GUARDIAN = "guardian_state"
_FIRST = "first"
_TOGETHER = 256  # contexts as one matrix: more cost no less each, and memory


class Served:
    """A decision point as this process serves it: its replica, and what every request needs.

    Args:
        replica: the policy state, to which updates are applied.
    """

    arms: Arms[Served] | None = None
    """The rollout under way, while this is its control."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.spec = replica.row.spec
        self.open: bool = getattr(self.spec.actions, "open", False)
        self.names: tuple[str, ...] = tuple(getattr(self.spec.actions, "names", ()))
        self.logged = LoggedDistribution(self.spec.actions)
        self.feature_count = len(getattr(self.spec.actions, "features", ()))
        self.selects = isinstance(self.spec.actions, SequenceActions)
        self.wants_guardian = GUARDIAN in self.spec.context.fields
        self.reads_vector = reads_vector(self.spec) and not self.feature_count
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
        """What points have in common that are drawn together: they make the same of a context.

        Of every other point itself: it has nothing in common with any.
        """
        row, policy = self.replica.row, self.replica.policy.likeness
        return self if policy is None else (row.spec_hash, row.feature_hash, policy)

    def fall_back(self, context: Mapping[str, Any], eligible: Sequence[str] | None) -> str:
        """Return the fallback's action.

        Args:
            context: as in the request, whether it is as declared or not.
            eligible: the actions allowed; None or empty: those declared.

        Returns:
            The eligible action of the first rule that holds, or of `otherwise`; where that is not
            eligible, the first that is. Of a sequence, the first candidates.

        Raises:
            Refused: the first candidate is meant, and there is none.
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
        """Return the actions that are named, by some of their parts too; all, if it is nonsense."""
        if not isinstance(self.spec.actions, Mixed):
            return eligible
        if self._configurations is None:
            self._configurations = Configurations(self.names)
        allowed = np.zeros(len(self.names), dtype=np.bool_)
        for name in eligible:
            with suppress(ActionError):
                allowed |= self._configurations.with_values(name)
        return [self.names[place] for place in np.flatnonzero(allowed)] or self.names


def draw_many(
    asked: Sequence[tuple[Served, DecideRequest, Mapping[str, Any]]], rng: np.random.Generator
) -> list[Drawn | Exception]:
    """Return the policy's action for each request, drawn together where it can be.

    Args:
        asked: decision points and requests with their contexts, completed.
        rng: gives the uniforms.

    Returns:
        In order: the draw; the fallback's answer when nothing is eligible; `Refused` for a
        context, an action or features that are not as declared; whatever the policy raised.
    """
    results: dict[int, Drawn | Exception] = {}
    together: dict[Served, list[int]] = {}
    for place, (served, request, context) in enumerate(asked):
        if served.reads_vector and request.eligible is None and request.links is None:
            together.setdefault(served, []).append(place)
        else:
            results[place] = _draw_or_error(served, request, context, rng)
    alike: dict[Hashable, list[int]] = {}
    for served, places in together.items():
        alike.setdefault(served.likeness, []).extend(places)
    for places in alike.values():
        for start in range(0, len(places), _TOGETHER):
            some = places[start : start + _TOGETHER]
            found = _draw_alike([asked[place] for place in some], rng)
            results.update(zip(some, found, strict=True))
    return [results[place] for place in range(len(asked))]


def _draw_alike(
    asked: Sequence[tuple[Served, DecideRequest, Mapping[str, Any]]], rng: np.random.Generator
) -> Sequence[Drawn | Exception]:
    """Return draws of points that are alike; those of one point stand side by side."""
    if len(asked) > 1:  # for one alone it costs half as much again
        with suppress(Exception):  # whose fault it is shows when each point draws alone, then each
            return _draw_together(asked, rng)
        points = [list(own) for _, own in groupby(asked, itemgetter(0))]
        if len(points) > 1:
            return [drawn for own in points for drawn in _draw_alike(own, rng)]
    return [_draw_or_error(*one, rng) for one in asked]


def _draw_together(
    asked: Sequence[tuple[Served, DecideRequest, Mapping[str, Any]]], rng: np.random.Generator
) -> list[Drawn | Exception]:
    """Return draws over all declared actions, by policies that read vectors."""
    served = asked[0][0]
    rows = encode_rows(served.replica.features, [context for _, _, context in asked])
    vectors, parts = rows.astype(np.float64), []
    for point, own in groupby([point for point, _, _ in asked]):
        count = len(list(own))
        parts.append((point.replica.policy, vectors[:count]))
        vectors = vectors[count:]
    choices = decide_alike(parts, rng=rng)
    stored = served.logged.of_many([choice.distribution for choice in choices])
    return [
        Drawn(None, distribution, it.action, it.propensity, "exact", as_stored(x), None, None, it.u)
        for it, distribution, x in zip(choices, stored, rows, strict=True)
    ]


def _draw_or_error(
    served: Served,
    request: DecideRequest,
    context: Mapping[str, Any],
    rng: np.random.Generator,
) -> Drawn | Exception:
    try:
        return _draw(served, request, context, rng)
    except Exception as error:  # noqa: BLE001 (each is answered by itself)
        return error


def _draw(
    served: Served, request: DecideRequest, context: Mapping[str, Any], rng: np.random.Generator
) -> Drawn:
    if served.selects:
        return draw_selection(served.replica, request, context, rng)
    if request.links is not None:
        raise Refused.of(
            "invalid", "links are allowed only for decision points of kind sequence", field="links"
        )
    eligible = request.eligible
    if eligible is not None and not eligible:
        return fall_back(served, request, context)
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
    if rows is not None:
        x = rows[list(eligible or served.names).index(choice.action)]
    return Drawn(
        eligible,
        served.logged.of(choice.distribution).tolist(),
        choice.action,
        choice.propensity,
        "exact",
        None if x is None else as_stored(x),
        key,
        None if rows is None else as_stored(rows),
        choice.u,
    )


def fall_back(served: Served, request: DecideRequest, context: Mapping[str, Any]) -> Drawn:
    """Return the declared fallback's answer.

    Args:
        served: the decision point.
        request: what is asked.
        context: its context, whether it is as declared or not.

    Returns:
        Probability 1 for one action, marked as degraded; its distribution is over that action,
        whatever else was eligible.
    """
    action = served.fall_back(context, request.eligible)
    return Drawn(
        [action], [1.0], action, 1.0, "fallback", None, None, None, None, degraded=True, weight=0.0
    )


def _feature_rows(served: Served, request: DecideRequest) -> NDArray[np.float64] | None:
    """Return (n, d) features of the eligible actions, in their order, rounded as stored."""
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
        return False  # a rule that cannot read this context does not hold
