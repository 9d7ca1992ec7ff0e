"""Step distribution, draw and propensity of sequence decisions.

A sequence policy picks from a growing set of candidates until it stops. Each step computes the
distribution over a few actions (the leading candidates, and stop or expand if allowed), mixes in
the floor, and draws from this vector with one uniform. The scores determine the leading candidates.
So the chain rule holds,

    p(a_1 … a_T) = Π_t p(a_t | s_t),    s_{t+1} a function of s_t and a_t,

and the logged product is the probability of the whole selection, not an estimate of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import ActionError, InputError
from steersman.errors.format import brief
from steersman.policies import inputs
from steersman.policies.choice import draw, mix_floor, share_ties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

STOP = "stop"
"""The action that ends a selection."""
EXPAND = "expand"
"""The action that brings in what the selected candidates lead to."""


@dataclass(frozen=True, slots=True)
class Step:
    """Logged step of a sequence.

    Args:
        eligible: possible actions: leading candidates, then expand and stop.
        action: drawn action.
        p: its probability, in (0, 1].

    Raises:
        InputError: ineligible action, or probability out of range.

    >>> Step(("a", "b", STOP), "a", 0.5).p
    0.5
    """

    eligible: tuple[str, ...]
    action: str
    p: float

    def __post_init__(self) -> None:
        if self.action not in self.eligible:
            raise InputError(f"the action {self.action!r} is not among {self.eligible!r}")
        # Written so that NaN is refused as well.
        if not 0.0 < self.p <= 1.0 + 1e-12:
            raise InputError(f"p is {self.p!r}; allowed: above 0 and at most 1")


def sequence_propensity(steps: Sequence[Step]) -> float:
    """Return the propensity of a sequence: the product over its steps; 1 without steps.

    Args:
        steps: steps in order.

    Returns:
        Π p_t, in (0, 1].

    Raises:
        InputError: not a list of steps, or a product that underflows float64.

    >>> sequence_propensity([Step(("a", STOP), "a", 0.5), Step((STOP,), STOP, 1.0)])
    0.5
    """
    taken = _steps(steps)
    product = math.prod(step.p for step in taken)
    if product <= 0.0:
        raise InputError(
            f"the propensities of {len(taken)} steps multiply to {product!r}; raise the floor or "
            "the temperature, or take fewer steps"
        )
    return product


def _steps(steps: Any) -> tuple[Step, ...]:
    try:
        taken = tuple(steps)
    except TypeError:
        taken = (None,)
    if not all(isinstance(step, Step) for step in taken):
        message = f"steps must be a list of Step; got {brief(steps)}"
        raise InputError(message)
    return taken


@dataclass(frozen=True, slots=True)
class StepRule:
    """Parameters of the distribution of a step.

    Args:
        leading: number of best-scored candidates from which each step draws, 1 to 1,000.
        temperature: temperature of the softmax over scores, in [1e-6, 100]; or 0: greedy, shared by
            ties.
        floor: total probability of each step in [0, 1) that is spread evenly over its eligible
            actions.

    Raises:
        InputError: value out of range.

    >>> StepRule(floor=0.1).leading
    10
    """

    leading: int = 10
    temperature: float = 1.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not _is_number(self.leading, int) or not 1 <= self.leading <= 1000:
            raise InputError(f"leading is {brief(self.leading)}; allowed: 1 to 1,000")
        object.__setattr__(self, "leading", int(self.leading))  # a state's JSON takes no other
        hot = _is_number(self.temperature, float) and 1e-6 <= self.temperature <= 100.0
        if not (hot or (_is_number(self.temperature, float) and self.temperature == 0.0)):
            given = brief(self.temperature)
            raise InputError(f"temperature is {given}; allowed: 0, 1e-6 to 100")
        if not _is_number(self.floor, float) or not 0.0 <= self.floor < 1.0:
            given = brief(self.floor)
            raise InputError(f"floor is {given}; allowed: 0 up to, not including, 1")

    @property
    def greedy(self) -> StepRule:
        """The rule that takes the best score, without exploring."""
        return StepRule(self.leading, 0.0, 0.0)


def _is_number(value: object, kind: type[int | float]) -> bool:
    """Return whether a value is a number of a kind; a whole number is a real one, too."""
    kinds = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, inputs.NO_NUMBER)


def leading(scores: Floats, count: int) -> NDArray[np.intp]:
    """Return the places of the highest scores, best first; equal ones by their place.

    Args:
        scores: (n,) float64; minus infinity where a candidate may not be picked.
        count: how many at most, ≥ 1.

    Returns:
        At most `count` places, none with a score of minus infinity.

    Raises:
        InputError: a score is not a number.

    >>> leading(np.array([0.1, -np.inf, 0.9, 0.1]), 2).tolist()
    [2, 0]
    """
    if (unknown := np.isnan(scores)).any():
        raise InputError(
            f"{np.count_nonzero(unknown)} of {len(scores)} candidate scores are NaN; fix the "
            "scorer or its features"
        )
    places = np.flatnonzero(scores > -np.inf)
    if count < len(places):
        known = scores[places]
        places = places[known >= np.partition(known, -count)[-count]]
    return places[np.argsort(-scores[places], kind="stable")[:count]]


def step_distribution(scores: Floats, rule: StepRule) -> Floats:
    """Return the probabilities of one step's eligible actions, floor included.

    With z = scores / temperature: p = (1 − ε) softmax(z) + ε / K.

    Args:
        scores: (K,) float64 finite scores of the eligible actions, K ≥ 1.
        rule: temperature and floor ε; `leading` is already applied.

    Returns:
        (K,) float64 that sums to 1.

    Raises:
        ActionError: no eligible action.
        InputError: a score that is not finite or not a number, or an invalid rule.

    >>> step_distribution(np.array([1.0, 1.0]), StepRule(temperature=0)).tolist()
    [0.5, 0.5]
    """
    inputs.kind("rule", rule, StepRule, "a StepRule")
    scores = inputs.numbers("scores", scores)
    if not len(scores):
        raise ActionError("no action is eligible at this step; end the sequence before it")
    if not np.isfinite(scores).all():
        raise InputError(f"the scores of a step are {scores!r}; they must be finite")
    if rule.temperature == 0.0:
        return mix_floor(share_ties(scores, None), None, rule.floor)
    # Cut where the exponential is 0 anyway: a low temperature must not overflow.
    below = np.maximum(scores - scores.max(), -745.0 * rule.temperature)
    masses = np.exp(below / rule.temperature)
    return mix_floor(masses / masses.sum(), None, rule.floor)


def draw_step(
    names: Sequence[str], scores: Floats, rule: StepRule, *, rng: np.random.Generator
) -> tuple[int, Step]:
    """Return one action drawn with one uniform, and the step to log.

    Args:
        names: names of the eligible actions, all different.
        scores: (K,) their scores.
        rule: parameters of the distribution.
        rng: random generator. One ``random()`` is drawn from it.

    Returns:
        The index of the action in `names`, and the step.

    Raises:
        ActionError: no eligible action.
        InputError: non-finite score, different lengths, or ``rng`` is not a generator (for example
            a seed).

    >>> place, step = draw_step(
    ...     ["a", STOP], np.array([5.0, 0.0]), StepRule(temperature=0), rng=np.random.default_rng(0)
    ... )
    >>> place, step.action, step.p
    (0, 'a', 1.0)
    """
    distribution = step_distribution(scores, rule)
    listed = inputs.names(names, "names")
    if len(listed) != len(distribution):
        raise InputError(f"{len(listed)} names have {len(distribution)} scores; pass one per name")
    return draw_of_step(listed, distribution, rng=rng)


def draw_of_step(
    names: Sequence[str], distribution: Floats, *, rng: np.random.Generator
) -> tuple[int, Step]:
    """Return what `draw_step` does, of a distribution that is known already.

    Args:
        names: of the eligible actions, all different.
        distribution: (K,) float64 of theirs, from `step_distribution`.
        rng: gives one ``random()``.

    Returns:
        The place of the action among `names`, and the step.

    Raises:
        InputError: ``rng`` is not a generator (but a seed, for example).

    >>> place, step = draw_of_step(["a", STOP], np.array([0.0, 1.0]), rng=np.random.default_rng(0))
    >>> place, step.action == STOP, step.p
    (1, True, 1.0)
    """
    place = draw(distribution, inputs.uniforms(rng)())
    return place, Step(tuple(names), names[place], float(distribution[place]))
