"""Computation of rewards from outcomes, as pure functions.

The result does not depend on the order, time or number of arrivals of the outcomes. Exception: of
two outcomes with the same name and time, the last one counts. A late or corrected outcome is a
revision; `revision` returns its exact effect on a linear learner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum, isfinite
from numbers import Real
from typing import TYPE_CHECKING, Literal

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief

if TYPE_CHECKING:
    from steersman.spec.reward import Reward as RewardSpec
    from steersman.spec.reward import Term


@dataclass(frozen=True, slots=True)
class Outcome:
    """Named number with its time.

    Attributes:
        name: name of the outcome, such as ``success`` or ``latency_ms``; not blank.
        value: any finite number; true and false count as 1 and 0.
        at: time of the outcome in seconds on the clock of the decision, not the time of arrival.
        decision: id of the decision. None: the whole episode.
    """

    name: str
    value: float
    at: float
    decision: str | None = None

    def __post_init__(self) -> None:
        """Validate and convert the fields."""
        outcome_name(self.name)
        if self.decision is not None:
            text(f"decision of outcome {self.name!r}", self.decision)
        object.__setattr__(self, "value", finite(f"outcome {self.name!r}", self.value))
        object.__setattr__(self, "at", finite(f"time of outcome {self.name!r}", self.at))


def outcome_name(value: object) -> str:
    """Return ``value`` if it is a valid outcome name.

    Args:
        value: a name.

    Raises:
        InputError: not a string, or a blank one.
    """
    name = text("outcome name", value)
    if name and not name.isspace():
        return name
    message = f"outcome name is {brief(name)}; allowed: a name that is not blank"
    raise InputError(f"{message}; name the measured quantity, such as 'success'")


def text(what: str, value: object) -> str:
    """Return ``value`` if it is a string.

    Args:
        what: name of the value in errors.
        value: a name.

    Raises:
        InputError: not a string.
    """
    if isinstance(value, str):
        return value
    message = f"{what} got {type(value).__name__} {brief(value)}; allowed: text (str)"
    raise InputError(f"{message}; send str(value) to convert it")


def finite(what: str, value: object) -> float:
    """Return ``value`` as a finite float.

    Args:
        what: name of the value in errors.
        value: a number; true and false count as 1 and 0.

    Raises:
        InputError: not a number, NaN, infinite, or too large for a float.
    """
    if type(value) is float and isfinite(value):  # nearly always
        return value
    duration = isinstance(value, np.timedelta64)  # numpy takes it for a whole number
    if duration or not isinstance(value, Real | np.bool_):
        message = f"{what} got {type(value).__name__} {brief(value)}; allowed: a finite number"
        raise InputError(f"{message}; send a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if isfinite(number):
        return number
    message = f"{what} got {type(value).__name__} {number}; allowed: a finite number"
    raise InputError(f"{message}; omit an unknown value")


Status = Literal["scored", "waiting", "assumed", "dropped"]


@dataclass(frozen=True, slots=True)
class Reward:
    """Reward of a decision at a point in time.

    Attributes:
        value: 0 to 1; None while waiting or when dropped.
        status: ``scored``: computed from outcomes. ``waiting``: outcomes or the end of the window
            are pending. ``assumed``: the declared value of ``missing``. ``dropped``: never learned.
        terms: raw values by outcome, received or declared for missing ones.
        scaled: values clipped and scaled to [0, 1].
        absent: missing required outcomes.
        unscored: received outcomes without a term; they have no effect.
        final: whether the window is closed. Only late events can still change the reward.
    """

    value: float | None
    status: Status
    terms: Mapping[str, float] = field(default_factory=dict)
    scaled: Mapping[str, float] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    unscored: tuple[str, ...] = ()
    final: bool = True


def evaluate(spec: RewardSpec, outcomes: Mapping[str, float]) -> Reward:
    """Return the reward of a decision with complete outcomes.

    With z = clip((v - low) / (high - low), 0, 1) per term, the value is
    (Σ w z - Σ negative w) / Σ |w|. It is 1 if every term with a positive weight is full and every
    term with a negative weight is 0.

    Args:
        spec: declared reward.
        outcomes: finite numbers by outcome name. Names without a term are listed in ``unscored``.

    Returns:
        The final reward. Its value is None if required outcomes are missing and dropped.

    Raises:
        InputError: non-finite value, invalid name, not a mapping, or an invalid ``spec``.

    >>> from steersman.spec.reward import Reward as RewardSpec
    >>> spec = RewardSpec.model_validate(
    ...     {
    ...         "terms": {
    ...             "success": {"weight": 2.0},
    ...             "latency_ms": {"weight": -2.0, "high": 2000},
    ...         }
    ...     }
    ... )
    >>> evaluate(spec, {"success": 1, "latency_ms": 500}).value
    0.875
    """
    _check_declaration(spec)
    _check_mapping("outcomes", outcomes, "a mapping of names to numbers")
    came = {
        outcome_name(name): finite(f"outcome {name!r}", value) for name, value in outcomes.items()
    }
    return _score(spec, came, final=True)


def evaluate_window(
    spec: RewardSpec, outcomes: Iterable[Outcome], *, decided_at: float, now: float
) -> Reward:
    """Return the reward of a decision at time ``now``.

    The latest outcome of a name counts (by ``at``; the last one for equal times). Outcomes after
    ``decided_at + window_s`` never count. Outcomes before the decision count, because application
    clocks differ. With ``trigger: first`` there is a value once all required outcomes have arrived;
    with ``trigger: window`` only after the window has closed.

    Args:
        spec: declared reward.
        outcomes: outcomes in any order.
        decided_at: time of the decision, in seconds.
        now: current time, in seconds on the same clock. Later outcomes are ignored.

    Returns:
        The reward, final after the window has closed.

    Raises:
        InputError: a time that is not finite, invalid outcomes, or a ``spec`` that is not a
            declaration.

    >>> from steersman.rewards import Outcome
    >>> from steersman.spec.reward import Reward as RewardSpec
    >>> spec = RewardSpec.model_validate({"terms": {"success": {"weight": 1.0}}, "window_s": 60})
    >>> came = [Outcome("success", 1, at=105.0), Outcome("success", 0, at=500.0)]
    >>> [evaluate_window(spec, came, decided_at=100.0, now=now).status for now in (101, 110)]
    ['waiting', 'scored']
    >>> evaluate_window(spec, came, decided_at=100.0, now=1000.0).value
    1.0
    """
    _check_declaration(spec)
    start, moment = finite("decided_at", decided_at), finite("now", now)
    closes = start + spec.window_s
    came = _latest(outcome for outcome in _listed(outcomes) if outcome.at <= min(closes, moment))
    final = moment >= closes
    if spec.trigger == "window" and not final:
        return _without_value(spec, came, "waiting", final=False)
    return _score(spec, came, final=final)


def credit(
    spec: RewardSpec, decisions: Mapping[str, float], outcomes: Iterable[Outcome], *, now: float
) -> dict[str, Reward]:
    """Return the reward of every decision of one episode, by decision.

    With ``scope: decision`` a decision is credited with its own outcomes alone, and outcomes of the
    whole episode are ignored. With ``scope: episode`` every decision is credited with all
    outcomes of the episode, its own and the others', that fall within its own window.

    Args:
        spec: the declared reward.
        decisions: when each was made, in seconds, by id.
        outcomes: those of the episode and of its decisions, in any order.
        now: as for `evaluate_window`.

    Returns:
        One reward per decision, in the order of ``decisions``.

    Raises:
        InputError: as `evaluate_window`, or decisions that are not a mapping.

    >>> from steersman.rewards import Outcome
    >>> from steersman.spec.reward import Reward as RewardSpec
    >>> spec = RewardSpec.model_validate(
    ...     {"terms": {"success": {"weight": 1.0}}, "scope": "episode"}
    ... )
    >>> rewards = credit(
    ...     spec, {"ask": 0.0, "answer": 9.0}, [Outcome("success", 1, at=10.0)], now=20
    ... )
    >>> {decision: reward.value for decision, reward in rewards.items()}
    {'ask': 1.0, 'answer': 1.0}
    """
    _check_declaration(spec)
    _check_mapping("decisions", decisions, "a mapping of ids to seconds")
    everything = _listed(outcomes)
    return {
        decision: evaluate_window(
            spec,
            everything if spec.scope == "episode" else _of(decision, everything),
            decided_at=decided_at,
            now=now,
        )
        for decision, decided_at in decisions.items()
    }


def revision(before: Reward | None, after: Reward) -> tuple[float, float] | None:
    """Return what a linear learner must add to go from one reward of a decision to the next.

    Args:
        before: the reward it last learned from; None if none.
        after: the reward as it is now.

    Returns:
        (change of reward, change of weight): weight +1 the first time, 0 for a correction, -1 when
        a reward is withdrawn; None when nothing changes.

    Raises:
        InputError: something else than rewards.

    >>> first, late = Reward(0.75, "scored"), Reward(0.5, "scored")
    >>> revision(None, first), revision(first, late), revision(late, late)
    ((0.75, 1.0), (-0.25, 0.0), None)
    """
    for name, reward in (("before", before), ("after", after)):
        known: object = reward
        if not isinstance(known, Reward) and not (name == "before" and known is None):
            advice = "pass the result of evaluate or evaluate_window"
            raise _wrong(name, known, "a steersman.rewards.Reward", advice)
    old = None if before is None else before.value
    if old == after.value:
        return None
    weight = float(after.value is not None) - float(old is not None)
    return (after.value or 0.0) - (old or 0.0), weight


def _check_declaration(spec: object) -> None:
    if not all(
        hasattr(spec, part) for part in ("terms", "missing", "trigger", "window_s", "scope")
    ):
        advice = (
            "pass the reward of a loaded decision point, or "
            "steersman.spec.reward.Reward.model_validate(mapping)"
        )
        raise _wrong("spec", spec, "a declared reward", advice)


def _check_mapping(what: str, value: object, wanted: str) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(what, value, wanted, "send {} if there are none")


def _listed(outcomes: object) -> list[Outcome]:
    wanted = "a list of steersman.rewards.Outcome"
    if not isinstance(outcomes, Iterable) or isinstance(outcomes, str | bytes | Mapping):
        advice = "send [] if there are none; pass a mapping of names to numbers to evaluate"
        raise _wrong("outcomes", outcomes, wanted, advice)
    try:
        listed = list(outcomes)
    except TypeError:  # an array without a dimension says that it can be gone through
        raise _wrong("outcomes", outcomes, wanted, "send [] if there are none") from None
    for place, outcome in enumerate(listed):
        if not isinstance(outcome, Outcome):
            advice = "create one with Outcome(name, value, at=seconds)"
            raise _wrong(f"outcome {place}", outcome, wanted, advice)
    return listed


def _wrong(what: str, value: object, wanted: str, advice: str) -> InputError:
    got = f"{type(value).__name__} {brief(value)}"
    return InputError(f"{what} got {got}; allowed: {wanted}; {advice}")


def _score(spec: RewardSpec, came: Mapping[str, float], *, final: bool) -> Reward:
    known = _with_assumed(spec, came)
    if len(known) < len(spec.terms) or not any(name in spec.terms for name in came):
        return _unscored(spec, came, final=final)
    scaled = {name: _scaled(spec.terms[name], value) for name, value in known.items()}
    weights = {name: spec.terms[name].weight for name in known}
    # Rounding may leave the last bit outside: the promise of 0 to 1 must hold exactly.
    reached = fsum(weights[name] * scaled[name] - min(weights[name], 0.0) for name in known)
    value = min(1.0, max(0.0, reached / fsum(abs(weight) for weight in weights.values())))
    return Reward(value, "scored", known, scaled, unscored=_extra(spec, came), final=final)


def _unscored(spec: RewardSpec, came: Mapping[str, float], *, final: bool) -> Reward:
    if not final:
        return _without_value(spec, came, "waiting", final=False)
    if spec.missing == "drop":
        return _without_value(spec, came, "dropped", final=True)
    return _without_value(spec, came, "assumed", final=True, value=spec.missing.value)


def _without_value(
    spec: RewardSpec,
    came: Mapping[str, float],
    status: Status,
    *,
    final: bool,
    value: float | None = None,
) -> Reward:
    terms = {name: came[name] for name in sorted(spec.terms) if name in came}
    scaled = {name: _scaled(spec.terms[name], raw) for name, raw in terms.items()}
    absent = tuple(
        name
        for name, term in sorted(spec.terms.items())
        if name not in came and term.missing is None
    )
    return Reward(value, status, terms, scaled, absent, _extra(spec, came), final)


def _with_assumed(spec: RewardSpec, came: Mapping[str, float]) -> dict[str, float]:
    known: dict[str, float] = {}
    for name, term in sorted(spec.terms.items()):
        value = came.get(name, term.missing)
        if value is not None:
            known[name] = value
    return known


def _extra(spec: RewardSpec, came: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(sorted(came.keys() - spec.terms.keys()))


def _scaled(term: Term, value: float) -> float:
    # Cut first: 1e300 minus a low of -1e300 would be infinite.
    inside = min(term.high, max(term.low, value))
    return (inside - term.low) / (term.high - term.low)


def _latest(outcomes: Iterable[Outcome]) -> dict[str, float]:
    newest: dict[str, Outcome] = {}
    for outcome in outcomes:
        known = newest.get(outcome.name)
        if known is None or outcome.at >= known.at:
            newest[outcome.name] = outcome
    return {name: outcome.value for name, outcome in newest.items()}


def _of(decision: str, outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.decision == decision]
