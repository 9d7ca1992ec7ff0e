"""RAFT: select often, keep what came out best, learn to do that again; from feedback alone.

Each round logs several selections of every question with their exact propensities and what came
back for each, and nothing else: no gold passage is looked at. The best one of a question is kept,
and the policy is trained to be likelier to do what was done there.

What came back is for a whole selection, and most of its steps had no part in it. `credit_actions`
says which had: it compares the selections of a question that took an action with those that did
not. A question whose selections all came out alike says nothing, and nothing is learned from it.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from steersman.errors import InputError
from steersman.learn.selecting.checkpoints import Checkpoints
from steersman.learn.selecting.cloning import visit
from steersman.learn.selecting.examples import Examples
from steersman.learn.selecting.task import stream, walks
from steersman.learn.selecting.trees import TreeSettings, grow
from steersman.policies.network_scorer import SummedScorer, scorer_from_state, scorer_state
from steersman.policies.sequence import EXPAND, STOP, StepRule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.learn.selecting.task import Options, Task, Walk
    from steersman.policies.tree_scorer import Scorer

    Floats = NDArray[np.float64]
    Sampler = Callable[..., list[Walk]]
    Credits = dict[str, dict[str, float]]
    Logged = dict[str, list[tuple[frozenset[str], float]]]

_log = logging.getLogger(__name__)
Stopped = Literal["rounds", "early", "not finite", "nothing to learn"]


class Tuner(Protocol):
    """Makes a scorer likelier to do what was kept: trees on top, or a network trained on."""

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the scorer after it.

        Args:
            examples: kept steps of all eligible actions.
            start: what it is trained on top of.
            seed: of whatever it draws.
        """


@dataclass(frozen=True, slots=True)
class TreesOnTop:
    """Trees by the softmax loss on top of the policy that started.

    Args:
        settings: how they are grown.
    """

    settings: TreeSettings = field(
        default_factory=lambda: TreeSettings(trees=60, learning_rate=0.1, least=20, ridge=5.0)
    )

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the sum of both.

        Args:
            examples: kept steps of all eligible actions.
            start: what the trees add to.
            seed: of the columns that a tree looks at.
        """
        return SummedScorer((start, grow(examples, self.settings, start=start, loss="softmax",
                                         seed=seed)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class FreshTrees:
    """Trees grown anew from what was kept: what started decides what is tried, and no more.

    Args:
        settings: how they are grown.
    """

    settings: TreeSettings = field(default_factory=TreeSettings)

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the trees alone.

        Args:
            examples: kept steps of all eligible actions.
            start: not used.
            seed: of the columns that a tree looks at.
        """
        return grow(examples, self.settings, seed=seed)


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """How RAFT goes on.

    Args:
        rounds: at most, ≥ 1.
        each: N, selections of every question in a round, ≥ 2.
        rule: how they are drawn; it must explore.
        credit: ``action``: what was kept counts by the credit of each action; ``selection``: by
            how far the selection was above the mean, all its steps alike, as published.
        least: share of the largest credit of its question from which on a candidate counts, in
            (0, 1).
        others: of `CloneSettings`, for ``action``: candidates that earned their credit are right in
            whatever state one gets to, and are learned by visiting states. When to stop and to
            expand is learned where the best selections did.
        held_out: share of the questions by whose feedback rounds are judged, in (0, .5].
        patience: rounds without a better one before it stops early, ≥ 1.
        regression: fall of the held-out reward below the best at which the best is gone back to,
            ≥ 0.

    Raises:
        InputError: a value out of its range.
    """

    rounds: int = 6
    each: int = 16
    rule: StepRule = field(default_factory=lambda: StepRule(10, 1.0, 0.1))
    credit: Literal["action", "selection"] = "action"
    least: float = 0.25
    others: int = 30
    held_out: float = 0.2
    patience: int = 2
    regression: float = 0.01

    def __post_init__(self) -> None:
        ranges = {
            "rounds": self.rounds >= 1,
            "each": self.each >= 2,
            "rule": self.rule.temperature > 0 or self.rule.floor > 0,
            "credit": self.credit in {"action", "selection"},
            "least": 0 < self.least < 1,
            "others": self.others >= 2,
            "held_out": 0 < self.held_out <= 0.5,
            "patience": self.patience >= 1,
            "regression": self.regression >= 0,
        }
        wrong = [f"{name} is {getattr(self, name)!r}" for name, fine in ranges.items() if not fine]
        if wrong:
            raise InputError(f"{', '.join(wrong)}; see the ranges in RaftSettings")


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found.

    Args:
        reward: mean of what was logged.
        best: mean of what was kept.
        kept: questions that something was learned from.
        held_out: mean greedy reward of the held-out questions afterwards.
    """

    reward: float
    best: float
    kept: int
    held_out: float


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What training came to.

    Args:
        scorer: the best by held-out feedback; what started, if nothing was better.
        rounds: in their order.
        before: held-out reward of what started.
        stopped: why it ended.
    """

    scorer: Scorer
    rounds: tuple[Round, ...]
    before: float
    stopped: Stopped


def raft(
    tasks: Sequence[Task],
    start: Scorer,
    settings: RaftSettings | None = None,
    *,
    tune: Tuner | None = None,
    seed: int = 0,
    folder: Path | None = None,
    log: Sequence[Walk] | None = None,
    sample: Sampler = walks,
) -> Trained:
    """Return a policy improved by logged feedback.

    Args:
        tasks: questions, at least five.
        start: the policy to begin with.
        settings: how it goes on.
        tune: what learns from what was kept; by default trees on top of `start`.
        seed: of all draws.
        folder: for checkpoints; a run that was killed goes on from there to the same bytes.
        log: what was logged before under any policy, of these questions or others: the first round
            learns from it instead of drawing its own.
        sample: draws selections as `walks` does, perhaps on other machines.

    Returns:
        The best policy with what each round found.

    Raises:
        InputError: too few questions.
        DataError: the folder is of another run, or the extra ``evidence`` is not installed.

    No doctest: it takes long; ``tests/learn/selecting/test_raft.py`` shows it.

    Source: Dong et al., RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment
    (2023), algorithm 1; the credit of steps departs from it, see the module.
    """
    how = settings or RaftSettings()
    learned, judged = split(tasks, how.held_out, seed)
    known = {task.id for task in learned}
    told = None if log is None else [one for one in log if one.task in known]
    run = _Run(how, tune or TreesOnTop(), start, learned, judged, seed, sample, told)
    about = {"settings": asdict(how), "seed": seed, "tasks": [task.id for task in tasks],
             "tune": repr(run.tune),
             "log": [] if told is None else [[one.task, one.reward] for one in told]}  # fmt: skip
    checkpoints = None if folder is None else Checkpoints(folder, about)
    state = run.begin() if checkpoints is None else run.resumed(checkpoints)
    while state.stopped is None:
        state = run.round(state)
        if checkpoints is not None:
            checkpoints.save(len(state.rounds), state.arrays())
    return Trained(state.best, tuple(state.rounds), state.before, state.stopped)


def split(tasks: Sequence[Task], held_out: float, seed: int) -> tuple[list[Task], list[Task]]:
    """Return the questions that are learned from, and those by which rounds are judged.

    Args:
        tasks: at least five.
        held_out: share of the second.
        seed: of the order.

    Raises:
        InputError: fewer than five.

    No doctest: it needs tasks; ``tests/learn/selecting/test_raft.py`` shows it.
    """
    if len(tasks) < 5:
        raise InputError(f"{len(tasks)} questions; at least 5 are needed to hold some out")
    order = np.random.default_rng([seed, len(tasks)]).permutation(len(tasks)).tolist()
    judged = set(order[: max(1, round(held_out * len(tasks)))])
    return (
        [task for place, task in enumerate(tasks) if place not in judged],
        [task for place, task in enumerate(tasks) if place in judged],
    )


# -- one run --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _State:
    """Between two rounds."""

    now: Scorer
    best: Scorer
    before: float
    best_reward: float
    rounds: list[Round]
    credited: Credits
    since: int
    stopped: Stopped | None = None

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        found: dict[str, NDArray[np.generic]] = {}
        for name, scorer in (("now", self.now), ("best", self.best)):
            found |= {f"{name}/{key}": array for key, array in scorer_state(scorer).items()}
        told = json.dumps(self.credited, sort_keys=True)
        found["credited"] = np.frombuffer(told.encode(), np.uint8).copy()
        found["rounds"] = np.array([[r.reward, r.best, r.kept, r.held_out] for r in self.rounds])
        found["numbers"] = np.array([self.before, self.best_reward, self.since])
        found["stopped"] = np.frombuffer((self.stopped or "-").encode(), np.uint8).copy()
        return found


@dataclass(frozen=True, slots=True)
class _Run:
    """What stays the same from round to round."""

    how: RaftSettings
    tune: Tuner
    start: Scorer
    learned: Sequence[Task]
    judged: Sequence[Task]
    seed: int
    sample: Sampler
    told: Sequence[Walk] | None

    def begin(self) -> _State:
        before = self._judge(self.start)
        return _State(self.start, self.start, before, before, [], {}, 0)

    def resumed(self, checkpoints: Checkpoints) -> _State:
        found = checkpoints.last()
        if found is None:
            return self.begin()
        arrays = found[1]
        parts: dict[str, dict[str, NDArray[np.generic]]] = defaultdict(dict)
        for name, array in arrays.items():
            group, _, key = name.partition("/")
            parts[group][key] = array
        before, best_reward, since = arrays["numbers"].tolist()
        stopped = arrays["stopped"].tobytes().decode()
        return _State(
            scorer_from_state(parts["now"]),
            scorer_from_state(parts["best"]),
            before, best_reward,
            [Round(a, b, int(c), d) for a, b, c, d in arrays["rounds"].tolist()],
            json.loads(arrays["credited"].tobytes()),
            int(since),
            None if stopped == "-" else stopped,  # type: ignore[arg-type]
        )  # fmt: skip

    def round(self, state: _State) -> _State:
        number = len(state.rounds)
        log = self._log(state.now, number)
        rewards = np.array([one.reward for one in log])
        if not np.isfinite(rewards).all():
            return self._ended(state, "not finite")
        credited = _credited(state.credited, log)
        best, kept = keep(log)
        examples = self._examples(kept, log, credited, state.now, number)
        if not examples:
            return self._ended(state, "nothing to learn")
        try:
            now = self.tune(Examples.joined(examples), self.start, seed=self.seed + number)
            reward = self._judge(now)
        except FloatingPointError as wrong:
            _log.warning("training stopped in round %d: %s; the last good is kept", number, wrong)
            return self._ended(state, "not finite")
        done = Round(float(rewards.mean()), best, len(examples), reward)
        return self._after(state, now, done, credited)

    def _log(self, now: Scorer, number: int) -> Sequence[Walk]:
        if number == 0 and self.told is not None:
            return self.told
        seed = 1_000_003 * self.seed + number
        return self.sample(self.learned, now, self.how.rule, each=self.how.each, seed=seed)

    def _examples(
        self,
        kept: Mapping[str, Walk],
        log: Sequence[Walk],
        credited: Credits,
        now: Scorer,
        number: int,
    ) -> list[Examples]:
        means = {
            name: float(np.mean([reward for _, reward in of_one]))
            for name, of_one in _by_task(log).items()
        }
        if self.how.credit == "selection":
            return [part for name, one in kept.items() for part in _above(one, means[name])]
        found = [
            part for name, one in kept.items()
            for part in _above(one, means[name], only=(STOP, EXPAND))
        ]  # fmt: skip
        for task in self.learned:
            earned = credited.get(task.id, {})
            enough = self.how.least * max(earned.values(), default=0.0)
            right = {action: credit for action, credit in earned.items() if credit >= enough}
            expert = _Credited(right)
            for scorer in (None, now) if right else ():
                rng = stream(self.seed + number, task.id)
                found += visit(task, expert, scorer, self.how.others, rng=rng)
        return found

    def _after(self, state: _State, now: Scorer, done: Round, credited: Credits) -> _State:
        better = done.held_out > state.best_reward
        after = _State(
            now=now,
            best=now if better else state.best,
            before=state.before,
            best_reward=max(done.held_out, state.best_reward),
            rounds=[*state.rounds, done],
            credited=credited,
            since=0 if better else state.since + 1,
        )
        if done.held_out < state.best_reward - self.how.regression:
            after.now = state.best
        if after.since >= self.how.patience:
            after.stopped = "early"
        elif len(after.rounds) >= self.how.rounds:
            after.stopped = "rounds"
        return after

    @staticmethod
    def _ended(state: _State, why: Stopped) -> _State:
        state.stopped = why
        return state

    def _judge(self, scorer: Scorer) -> float:
        found = self.sample(self.judged, scorer, self.how.rule.greedy, each=1, seed=self.seed)
        reward = float(np.mean([one.reward for one in found]))
        if not np.isfinite(reward):
            raise FloatingPointError(f"the held-out reward is {reward}")
        return reward


def keep(log: Sequence[Walk]) -> tuple[float, dict[str, Walk]]:
    """Return the mean reward of each question's best selection, and these; the first of equals.

    Args:
        log: selections; those of one question next to each other.

    Returns:
        The mean of the best, and the best by their questions.

    No doctest: it needs selections; ``tests/learn/selecting/test_raft.py`` shows it.
    """
    kept: dict[str, Walk] = {}
    for one in log:
        if one.task not in kept or one.reward > kept[one.task].reward:
            kept[one.task] = one
    return float(np.mean([one.reward for one in kept.values()])), kept


def credit_actions(
    of_one: Sequence[tuple[frozenset[str], float]], *, doubt: float = 4.0
) -> dict[str, float]:
    """Return the total effect of each action on the reward of one question's selections.

    The mean reward of the selections that took the action, less that of those that did not, times
    n/(n + doubt) for the n that took it. Selections are drawn by chance, so on average nothing but
    the action differs between the two. The effect is the total one: a passage without an answer
    that leads to the one with it has its part in what came of that. (Explaining rewards by all
    actions together would give everything to the last of them, which alone "has" the answer.)

    Assumes that every selection was drawn by one and the same policy. Across policies, or where an
    action is tried by the better half of them alone, differences are not effects.

    Args:
        of_one: the actions of each selection, and its reward.
        doubt: ≥ 0; selections' worth of doubt in an effect that few selections show.

    Returns:
        Action -> credit, for those with a positive one; none where all rewards are alike.

    >>> log = [
    ...     (frozenset("ab"), 1.0),
    ...     (frozenset("a"), 1.0),
    ...     (frozenset("b"), 0.0),
    ...     (frozenset("c"), 0.0),
    ... ]
    >>> credit_actions(log, doubt=0.0)
    {'a': 1.0}

    Source: the difference of means in a randomised experiment, Neyman (1923); that controlling for
    what lies between hides an effect: Pearl, Causality (2009), section 4.5.
    """
    rewards = np.array([reward for _, reward in of_one])
    if not len(rewards) or np.ptp(rewards) < 1e-12:
        return {}
    names = sorted(set().union(*(actions for actions, _ in of_one)))
    taken = np.array([[name in actions for name in names] for actions, _ in of_one], np.float64)
    having = taken.sum(axis=0)
    lacking = len(rewards) - having
    with_it = taken.T @ rewards / having
    without = (1.0 - taken).T @ rewards / np.maximum(lacking, 1.0)
    effect = np.where(lacking > 0, with_it - without, 0.0) * having / (having + doubt)
    return {
        name: float(one) for name, one in zip(names, effect.tolist(), strict=True) if one > 1e-9
    }


@dataclass(frozen=True, slots=True)
class _Credited:
    """An expert that knows what earned credit, and nothing else."""

    right: Mapping[str, float]

    def labels(self, task: object, state: object, options: Options) -> Floats:
        """Return (k,) the credit of each action, at most 1.

        Args:
            task: whose state it is.
            state: where one stands.
            options: its actions.
        """
        found = np.array([min(self.right.get(name, 0.0), 1.0) for name in options.names])
        found[options.candidates :] = 0.0  # when to stop or expand is no matter of the name
        return found


def _credited(before: Credits, log: Sequence[Walk]) -> Credits:
    """Return the credits after one more log: of what was tried again, the later ones hold.

    Each log is looked at by itself, since the selections of another policy are no fair comparison.
    What all of its selections took, or none, was not tried by it.
    """
    found = {name: dict(of_one) for name, of_one in before.items()}
    for name, of_one in _by_task(log).items():
        taken = [actions for actions, _ in of_one]
        tried = frozenset().union(*taken) - frozenset.intersection(*taken)
        kept = {action: one for action, one in found.get(name, {}).items() if action not in tried}
        found[name] = kept | credit_actions(of_one)
    return found


def _by_task(log: Sequence[Walk]) -> Logged:
    found: Logged = {}
    for one in log:
        actions = frozenset(taken.step.action for taken in one.taken)
        found.setdefault(one.task, []).append((actions, one.reward))
    return found


def _above(one: Walk, mean: float, *, only: Sequence[str] = ()) -> list[Examples]:
    """Return the steps of a kept selection, or some of them, by how far it was above the mean."""
    weight = one.reward - mean
    steps = []
    for taken in one.taken if weight > 1e-12 else ():
        if only and taken.step.action not in only:
            continue
        targets = np.zeros(len(taken.rows))
        targets[taken.chosen] = 1.0
        steps.append(Examples.step(taken.rows, targets, weight))
    return steps
