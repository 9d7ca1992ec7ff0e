"""What is learned from: one sequence of choices among rows, whatever the rows are about.

A task is one question with its rules. It says which actions there are in a state, each with the row
that a scorer sees of it, and what comes of taking one. All chance is in the choice.
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

    from steersman.policies import Scorer

    Floats = NDArray[np.float64]

_TURNS = 1_000_003  # more than any run has


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The actions of a state.

    Args:
        names: of all k actions, candidates first.
        rows: (k, columns) what a scorer sees of each.
        candidates: the first so many are candidates, of which only the leading may be drawn; the
            others (expand, stop) always may.
    """

    names: Sequence[str]
    rows: Floats
    candidates: int


class Task(Protocol):
    """One question to select for; states are whatever it likes."""

    @property
    def id(self) -> str:
        """The question's id."""

    @property
    def group(self) -> str:
        """What it is held out with, such as its conversation; its id where it stands alone."""

    def begin(self) -> Any:
        """Return the first state."""

    def options(self, state: Any) -> Options | None:
        """Return the actions of a state; None: it has ended.

        Args:
            state: any of this task.
        """

    def take(self, state: Any, place: int) -> Any:
        """Return the state after an action.

        Args:
            state: where it is taken.
            place: of the action among the options.
        """

    def reward(self, state: Any) -> float:
        """Return what a selection that ended so is worth, in [0, 1]: what bandit feedback says.

        Args:
            state: in which it ended.
        """

    def potential(self, state: Any) -> float:
        """Return Φ, known without the answer, for shaping; 0 where nothing is declared.

        Args:
            state: any of this task.
        """


class Expert(Protocol):
    """Says what is right in a state of a task, wherever one got."""

    def labels(self, task: Any, state: Any, options: Options) -> Floats:
        """Return (k,) how right each action is, in [0, 1].

        Args:
            task: whose state it is.
            state: where one stands.
            options: its actions.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """One choice with all that learning needs of it.

    Args:
        step: as it is logged.
        rows: (e, columns) of the eligible actions.
        chosen: the place of the action among these.
        place: its place among the options.
    """

    step: Step
    rows: Floats
    chosen: int
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """One selection with what it was worth: a row of the log.

    Args:
        task: id of the question.
        taken: its choices.
        reward: what came back, in [0, 1].
        propensity: of all choices together.
        potentials: (len(taken) + 1,) Φ before each choice and at the end.
    """

    task: str
    taken: tuple[Taken, ...]
    reward: float
    propensity: float
    potentials: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Along:
    """What a policy would have done at each of the T steps of a logged selection.

    Args:
        chances: (T,) with which probability it would have taken the logged action; 0 where that
            action is none that it may draw.
        taken: (T, columns) the row of each logged action.
        meant: (T, columns) the mean row of its own actions, by their probabilities.
        missing: (T,) its mass on actions that could not be drawn when the step was logged.
    """

    chances: Floats
    taken: Floats
    meant: Floats
    missing: Floats


def choose(options: Options, scorer: Scorer, rule: StepRule, *, rng: np.random.Generator) -> Taken:
    """Return one choice, drawn with one uniform.

    Args:
        options: the state's actions.
        scorer: of their rows.
        rule: how scores become probabilities.
        rng: gives one uniform.

    Returns:
        The choice with all that learning needs of it.
    """
    return _eligible(options, scorer.scores(options.rows), rule).drawn(rng)


@dataclass(frozen=True, slots=True, eq=False)
class _Eligible:
    """What may be drawn in a state, and with which probabilities."""

    names: tuple[str, ...]
    places: NDArray[np.intp]
    rows: Floats
    chances: Floats

    def drawn(self, rng: np.random.Generator) -> Taken:
        chosen, step = draw_of_step(self.names, self.chances, rng=rng)
        return Taken(step, self.rows, chosen, int(self.places[chosen]))

    def chance(self, place: int, logged: Collection[str]) -> tuple[float, Floats, float]:
        """Return the probability of an option, the mean row of all, and the mass not in a log."""
        chances = self.chances
        elsewhere = np.array([name not in logged for name in self.names])
        chance = float(chances[self.places == place].sum())
        return chance, chances @ self.rows, float(chances[elsewhere].sum())


def _eligible(options: Options, scores: Floats, rule: StepRule) -> _Eligible:
    first = leading(scores[: options.candidates], rule.leading)
    places = np.concatenate([first, np.arange(options.candidates, len(scores))])
    names = tuple(options.names[place] for place in places.tolist())
    chances = step_distribution(scores[places], rule)
    return _Eligible(names, places, options.rows[places], chances)


@dataclass(frozen=True, slots=True, eq=False)
class _Reached:
    """A state with what may be drawn in it; None: it has ended."""

    state: Any
    potential: float
    options: Options | None
    eligible: _Eligible | None


class _Ways:
    """The ways through one task; a state that was reached before is not worked out again."""

    def __init__(self, task: Task, scorer: Scorer, rule: StepRule) -> None:
        self._task, self._scorer, self._rule = task, scorer, rule
        self._reached: dict[tuple[int, ...], _Reached] = {(): self._at(task.begin())}

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

    def along(self, logged: Walk) -> Along:
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
        return Along(np.array(chances), np.array(taken), np.array(meant), np.array(missing))

    def _next(self, way: tuple[int, ...], before: _Reached) -> _Reached:
        if way not in self._reached:
            self._reached[way] = self._at(self._task.take(before.state, way[-1]))
        return self._reached[way]

    def _at(self, state: Any) -> _Reached:
        options, potential = self._task.options(state), self._task.potential(state)
        if options is None:
            return _Reached(state, potential, None, None)
        scores = self._scorer.scores(options.rows)
        return _Reached(state, potential, options, _eligible(options, scores, self._rule))


def _unlike(logged: Walk, number: int, what: str) -> DataError:
    return DataError(
        f"step {number + 1} of a logged selection for {logged.task!r} does not fit this question: "
        f"{what} there; pass the questions and limits that it was logged under"
    )


def along(task: Task, log: Sequence[Walk], scorer: Scorer, rule: StepRule) -> list[Along]:
    """Return what a policy would have done along logged selections of one question.

    The question is gone through again, since a policy may prefer what the log's did not let lead.

    Args:
        task: the question, with the limits that it was logged under.
        log: its selections, drawn by any policy.
        scorer: of the policy that is asked about.
        rule: how that one's scores become probabilities.

    Returns:
        One for each selection.

    Raises:
        DataError: a selection is of another question, or of other limits.
    """
    ways = _Ways(task, scorer, rule)
    return [ways.along(one) for one in log]


def walk(task: Task, scorer: Scorer, rule: StepRule, *, rng: np.random.Generator) -> Walk:
    """Return one selection from begin to end.

    Args:
        task: the question.
        scorer: of the actions' rows.
        rule: how scores become probabilities.
        rng: one uniform for each choice.

    Returns:
        The selection with its reward.

    Raises:
        InputError: its propensity is too small for a number.
    """
    return _Ways(task, scorer, rule).walk(rng)


def walks(
    tasks: Sequence[Task], scorer: Scorer, rule: StepRule, *, each: int, seed: int
) -> list[Walk]:
    """Return several selections for each of some questions; what one gets depends on no other.

    A plain function of plain values, so that it may run anywhere: every question draws from a
    stream of its own, by its id and the seed.

    Args:
        tasks: questions.
        scorer: of the actions' rows.
        rule: how scores become probabilities.
        each: selections for each question, ≥ 1.
        seed: of the streams.

    Returns:
        `each` of the first question, then of the next.
    """
    found = []
    for task in tasks:
        rng, ways = stream(seed, task.id), _Ways(task, scorer, rule)
        found += [ways.walk(rng) for _ in range(each)]
    return found


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the random stream of one question.

    Args:
        seed: of the run, ≥ 0.
        name: the question's id.

    Returns:
        A generator that depends on both alone.

    >>> stream(1, "q").random() == stream(1, "q").random()
    True
    """
    return np.random.default_rng([seed, *name.encode()])


def turn_stream(seed: int, turn: int, name: str) -> np.random.Generator:
    """Return the random stream of one question in one of several turns through all of them.

    Args:
        seed: of the run, ≥ 0.
        turn: 0 to 1,000,002; the first turn's is `stream` of the same seed where that is 0.
        name: the question's id.

    Returns:
        A generator that no other seed and turn have.

    >>> turn_stream(0, 1, "q").random() == turn_stream(1, 0, "q").random()
    False
    """
    return stream(_TURNS * seed + turn, name)
