"""Selection tasks: sequences of choices among rows.

A task is one question with its rules. It lists the actions of a state with their rows, and the
result of taking one. Tasks are deterministic; only the choice is random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steersman.errors import DataError
from steersman.policies.sequence import (
    Step,
    StepRule,
    draw_of_step,
    leading,
    sequence_propensity,
    step_distribution,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from steersman.policies.scorers import Scorer

    Floats = NDArray[np.float64]

_TURNS = 1_000_003  # more than the questions of any run


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """Actions of a state.

    Args:
        names: names of all k actions, candidates first.
        rows: (k, columns) features of each action.
        candidates: number of candidates. Only leading candidates may be drawn; the other actions
            (expand, stop) always may.
    """

    names: Sequence[str]
    rows: Floats
    candidates: int


class Task(Protocol):
    """Question to select for, with states of any type."""

    @property
    def id(self) -> str:
        """Question id."""

    @property
    def group(self) -> str:
        """Group that is held out together, such as its conversation; default: its id."""

    def begin(self) -> Any:
        """Return the first state."""

    def options(self, state: Any) -> Options | None:
        """Return the actions of a state; None at the end."""

    def take(self, state: Any, place: int) -> Any:
        """Return the state after an action."""

    def reward(self, state: Any) -> float:
        """Return the reward of a finished selection, in [0, 1]."""

    def potential(self, state: Any) -> float:
        """Return the shaping potential Φ, which needs no answer; 0 if none is declared."""


class Expert(Protocol):
    """Labels the correct actions in any state of a task."""

    def labels(self, task: Any, state: Any, options: Options) -> Floats:
        """Return (k,) label of each action, in [0, 1]."""


@dataclass(frozen=True, slots=True, eq=False)
class TakenStep:
    """One choice with its training data.

    Args:
        step: logged step.
        rows: (e, columns) features of the eligible actions.
        chosen: index of the action among the eligible actions.
        place: index of the action among the options.
    """

    step: Step
    rows: Floats
    chosen: int
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """One selection with its reward: a row of the log.

    Args:
        task: question id.
        taken: choices.
        reward: reward in [0, 1].
        propensity: joint propensity of all choices.
        potentials: (len(taken) + 1,) Φ before each choice and at the end.
    """

    task: str
    taken: tuple[TakenStep, ...]
    reward: float
    propensity: float
    potentials: Floats


@dataclass(frozen=True, slots=True, eq=False)
class TargetSteps:
    """Target policy along the T steps of a logged selection.

    Args:
        chances: (T,) its probability of the logged action; 0 if ineligible for it.
        taken: (T, columns) row of each logged action.
        meant: (T, columns) mean row of its own actions by probability.
        missing: (T,) its probability of actions that the log could not draw.
    """

    chances: Floats
    taken: Floats
    meant: Floats
    missing: Floats


def choose(
    options: Options, scorer: Scorer, rule: StepRule, *, rng: np.random.Generator
) -> TakenStep:
    """Return one choice, drawn with one uniform."""
    return _eligible(options, scorer.scores(options.rows), rule).drawn(rng)


@dataclass(frozen=True, slots=True, eq=False)
class _EligibleActions:
    """Eligible actions of a state with their probabilities."""

    names: tuple[str, ...]
    places: NDArray[np.intp]
    rows: Floats
    chances: Floats

    def drawn(self, rng: np.random.Generator) -> TakenStep:
        chosen, step = draw_of_step(self.names, self.chances, rng=rng)
        return TakenStep(step, self.rows, chosen, int(self.places[chosen]))

    def chance(self, place: int, logged: Collection[str]) -> tuple[float, Floats, float]:
        """Return the probability of an option, the mean row, and the mass missing in a log."""
        chances = self.chances
        elsewhere = np.array([name not in logged for name in self.names])
        chance = float(chances[self.places == place].sum())
        return chance, chances @ self.rows, float(chances[elsewhere].sum())


def _eligible(options: Options, scores: Floats, rule: StepRule) -> _EligibleActions:
    first = leading(scores[: options.candidates], rule.leading)
    places = np.concatenate([first, np.arange(options.candidates, len(scores))])
    names = tuple(options.names[place] for place in places.tolist())
    chances = step_distribution(scores[places], rule)
    return _EligibleActions(names, places, options.rows[places], chances)


@dataclass(frozen=True, slots=True, eq=False)
class _VisitedState:
    """State with its eligible actions; None at the end."""

    state: Any
    potential: float
    options: Options | None
    eligible: _EligibleActions | None


class _StateCache:
    """Cache of the states of one task."""

    def __init__(self, task: Task, scorer: Scorer, rule: StepRule) -> None:
        self._task, self._scorer, self._rule = task, scorer, rule
        self._reached: dict[tuple[int, ...], _VisitedState] = {(): self._at(task.begin())}

    def walk(self, rng: np.random.Generator) -> Walk:
        way: tuple[int, ...] = ()
        now, taken = self._reached[way], []
        potentials = [now.potential]
        while now.eligible is not None:
            taken.append(now.eligible.drawn(rng))
            way = (*way, taken[-1].place)
            now = self._next(way, now)
            potentials.append(now.potential)
        propensity = sequence_propensity([one.step for one in taken])
        reward = self._task.reward(now.state)
        return Walk(self._task.id, tuple(taken), reward, propensity, np.array(potentials))

    def along(self, logged: Walk) -> TargetSteps:
        way: tuple[int, ...] = ()
        now, chances = self._reached[way], []
        taken, meant, missing = [], [], []
        for number, one in enumerate(logged.taken):
            names = () if now.options is None else now.options.names
            if now.options is None or now.eligible is None or one.place not in range(len(names)):
                raise _unlike(logged, number, "this action is not allowed")
            if names[one.place] != one.step.action:
                raise _unlike(logged, number, f"{names[one.place]!r} stands")
            known = frozenset(one.step.eligible)
            chance, mean, elsewhere = now.eligible.chance(one.place, known)
            missing.append(elsewhere)
            chances.append(chance)
            taken.append(now.options.rows[one.place])
            meant.append(mean)
            way = (*way, one.place)
            now = self._next(way, now)
        if now.options is not None:
            raise _unlike(logged, len(logged.taken), "the selection continues")
        return TargetSteps(np.array(chances), np.array(taken), np.array(meant), np.array(missing))

    def _next(self, way: tuple[int, ...], before: _VisitedState) -> _VisitedState:
        if way not in self._reached:
            self._reached[way] = self._at(self._task.take(before.state, way[-1]))
        return self._reached[way]

    def _at(self, state: Any) -> _VisitedState:
        options, potential = self._task.options(state), self._task.potential(state)
        if options is None:
            return _VisitedState(state, potential, None, None)
        scores = self._scorer.scores(options.rows)
        return _VisitedState(state, potential, options, _eligible(options, scores, self._rule))


def _unlike(logged: Walk, number: int, what: str) -> DataError:
    return DataError(
        f"step {number + 1} of a logged selection for {logged.task!r} does not fit this question: "
        f"{what} there; pass the questions and limits that it was logged under"
    )


def along(task: Task, log: Sequence[Walk], scorer: Scorer, rule: StepRule) -> list[TargetSteps]:
    """Return the target policy along logged selections of one question.

    The question is replayed, because the target may prefer candidates that the log could not draw.

    Raises:
        DataError: a selection belongs to another question or to other limits.
    """
    ways = _StateCache(task, scorer, rule)
    return [ways.along(one) for one in log]


def walk(task: Task, scorer: Scorer, rule: StepRule, *, rng: np.random.Generator) -> Walk:
    """Return one complete selection.

    Raises:
        InputError: its propensity underflows.
    """
    return _StateCache(task, scorer, rule).walk(rng)


def walks(
    tasks: Sequence[Task], scorer: Scorer, rule: StepRule, *, each: int, seed: int
) -> list[Walk]:
    """Return several selections per question, each independent of the others.

    A function of plain values that can run anywhere. Each question has its own random stream from
    its id and the seed.

    Args:
        each: selections per question, ≥ 1.
    """
    found = []
    for task in tasks:
        rng, ways = stream(seed, task.id), _StateCache(task, scorer, rule)
        found += [ways.walk(rng) for _ in range(each)]
    return found


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the random stream of one question.

    Args:
        seed: random seed, ≥ 0.

    >>> stream(1, "q").random() == stream(1, "q").random()
    True
    """
    return np.random.default_rng([seed, *name.encode()])


def turn_stream(seed: int, turn: int, name: str) -> np.random.Generator:
    """Return the random stream of one question in one of several passes.

    Args:
        seed: random seed, ≥ 0.
        turn: pass number, 0 to 1,000,002; pass 0 is `stream` of the same seed.

    >>> turn_stream(0, 1, "q").random() == turn_stream(1, 0, "q").random()
    False
    """
    return stream(_TURNS * seed + turn, name)
