"""RAFT: reward-ranked fine-tuning of a sequence policy from feedback only.

Each round logs several selections per question with exact propensities and rewards. It keeps the
best selection of each question and trains the policy on it. It never reads gold passages.

The reward belongs to a whole selection, so some steps get credit without a cause. The published
method relies on averaging over many questions. With few questions, `causes` estimates the credit of
each action: a failed selection clears all its actions. A `passing` function can move that credit to
other actions that lead there. A question without a successful selection gives no signal.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import check_numbers
from steersman.policies.scorers import SummedScorer, scorer_from_state, scorer_state
from steersman.policies.sequence import EXPAND, STOP, StepRule
from steersman_systems.evidence_selection.training.behaviour_cloning import visit
from steersman_systems.evidence_selection.training.checkpoints import Checkpoints
from steersman_systems.evidence_selection.training.examples import Examples
from steersman_systems.evidence_selection.training.rounds import (
    Round,
    TrainingResult,
    crossed,
    greedy_rewards,
    mean_reward,
    split,
)
from steersman_systems.evidence_selection.training.run_digest import (
    about_run,
    digest_of,
    digest_of_log,
)
from steersman_systems.evidence_selection.training.task import stream, walks
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings, grow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.training.rounds import Sampler, Stopped
    from steersman_systems.evidence_selection.training.task import Task, Walk

    _Learned = Callable[[Sequence[Task]], tuple[Scorer | None, int]]
    from steersman_systems.evidence_selection.training.task import Options

    Floats = NDArray[np.float64]
    Credits = dict[str, dict[str, float]]
    Logged = dict[str, list[tuple[frozenset[str], float]]]
    Passing = Callable[[Sequence[Any], Credits], Credits]
    """Maps questions and their causes to the probability that each action is correct."""


class Tuner(Protocol):
    """Trains a scorer on kept steps."""

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the trained scorer."""


@dataclass(frozen=True, slots=True)
class TreesOnTop:
    """Tuner that trains trees with the softmax loss on top of the start policy.

    Args:
        settings: settings of the trees.
    """

    settings: TreeSettings = field(
        default_factory=lambda: TreeSettings(trees=60, learning_rate=0.1, least=20, ridge=5.0)
    )

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the sum of the start policy and the trees."""
        return SummedScorer((start, grow(examples, self.settings, start=start, loss="softmax",
                                         seed=seed)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class FreshTrees:
    """Tuner that trains new trees; the start policy only selects what is tried.

    Args:
        settings: settings of the trees.
    """

    settings: TreeSettings = field(default_factory=TreeSettings)

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the new trees."""
        return grow(examples, self.settings, seed=seed)


def keep(log: Sequence[Walk]) -> tuple[float, dict[str, Walk]]:
    """Return the best selection of each question, and their mean reward; ties go to the first."""
    kept: dict[str, Walk] = {}
    for one in log:
        if one.task not in kept or one.reward > kept[one.task].reward:
            kept[one.task] = one
    return float(np.mean([one.reward for one in kept.values()])), kept


def causes(
    of_one: Sequence[tuple[frozenset[str], float]], *, doubt: float = 1.0, turns: int = 100
) -> dict[str, float]:
    """Return the probability that each action alone causes the reward, for one question.

    The model is a noisy or: a selection earns 1 − Π (1 − θ_a) on average. A failed selection clears
    all its actions. In a successful one, the actions that are not cleared elsewhere share the
    credit. The model is conditional on the actions, so it needs no propensities and accepts mixed
    policies.

    Args:
        doubt: prior weight in selections, ≥ 0.
        turns: number of expectation-maximisation steps, ≥ 1.

    Returns:
        θ in [0, 1] for each action that any selection took.

    >>> log = [
    ...     (frozenset("ab"), 1.0),
    ...     (frozenset("ac"), 1.0),
    ...     (frozenset("bc"), 0.0),
    ... ]
    >>> causes(log, doubt=0.0)
    {'a': 1.0, 'b': 0.0, 'c': 0.0}

    Source: noisy or: Pearl, Probabilistic Reasoning in Intelligent Systems (1988), section 4.3;
    its fit: Dempster, Laird & Rubin, Maximum Likelihood from Incomplete Data (1977).
    """
    names = sorted(set().union(*(actions for actions, _ in of_one)))
    if not names:
        return {}
    rewards = np.array([reward for _, reward in of_one])
    taken = np.array([[name in actions for name in names] for actions, _ in of_one], np.float64)
    having = taken.sum(axis=0) + doubt
    chances = np.full(len(names), 0.5)
    for _ in range(turns):
        none = np.exp(taken @ np.log1p(-np.minimum(chances, 1.0 - 1e-12)))
        chances = chances * ((rewards / np.maximum(1.0 - none, 1e-12)) @ taken) / having
    return dict(zip(names, np.round(np.clip(chances, 0.0, 1.0), 12).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class CreditedExpert:
    """Expert that knows only credited actions.

    Args:
        right: probability that each action is correct.
    """

    right: Mapping[str, float]

    def labels(self, task: object, state: object, options: Options) -> Floats:
        """Return (k,) probability that each candidate is correct, at most 1."""
        found = np.array([min(self.right.get(name, 0.0), 1.0) for name in options.names])
        found[options.candidates :] = 0.0  # stop and expand are not identified by name
        return found


def by_task(log: Sequence[Walk]) -> Logged:
    """Return the candidates and reward of each selection, by question.

    Stop and expand actions contain no answer, so they get no credit.
    """
    found: Logged = {}
    for one in log:
        actions = frozenset(taken.step.action for taken in one.taken) - {STOP, EXPAND}
        found.setdefault(one.task, []).append((actions, one.reward))
    return found


def above(one: Walk, mean: float, *, only: Sequence[str] = ()) -> list[Examples]:
    """Return selected steps of a kept selection, weighted by its reward above the mean."""
    weight = one.reward - mean
    steps = []
    for taken in one.taken if weight > 1e-12 else ():
        if only and taken.step.action not in only:
            continue
        targets = np.zeros(len(taken.rows))
        targets[taken.chosen] = 1.0
        steps.append(Examples.step(taken.rows, targets, weight))
    return steps


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Settings of RAFT.

    Args:
        rounds: maximum number of rounds, ≥ 1.
        each: N, selections per question and round, ≥ 2.
        rule: sampling rule; it must explore.
        credit: ``selection`` (as published): all steps of a kept selection count, weighted by its
            reward above the question's mean. ``action``: candidates count by `causes`; better if
            few picks of a selection cause its reward.
        least: minimum credit of a candidate to count, in (0, 1).
        others: as in `CloneSettings`, for ``action``: credited candidates are correct in any state
            and are learned by visiting states; stop and expand are learned from the best
            selections.
        turns: passes of visiting and learning per round, for ``action``, ≥ 1; later passes visit
            with the newly trained scorer.
        held_out: share of held-out questions that judge each round, in (0, .5].
        crossed: 0, or the number of cross-validation parts, ≥ 2, instead of `held_out`. All
            questions then judge a round, and the final policy learns from all. A round trains that
            many times more. In later rounds a policy that learned from all questions samples the
            selections; the judges of a part never learn its labels.
        patience: rounds without improvement before early stopping, ≥ 1.
        regression: drop of the held-out reward below the best that undoes a round, ≥ 0. A few dozen
            held-out questions cannot separate small losses from gains. 0 keeps no worse round.

    Raises:
        InputError: a value is out of range.
    """

    rounds: int = 6
    each: int = 16
    rule: StepRule = field(default_factory=lambda: StepRule(10, 1.0, 0.1))
    credit: Literal["selection", "action"] = "selection"
    least: float = 0.05
    others: int = 30
    turns: int = 2
    held_out: float = 0.2
    crossed: int = 0
    patience: int = 2
    regression: float = 0.01

    def __post_init__(self) -> None:
        check_numbers(
            self,
            {
                "rounds": ">= 1", "each": ">= 2", "least": "(0, 1)", "others": ">= 2",
                "turns": ">= 1", "held_out": "(0, 0.5]", "crossed": ">= 0", "patience": ">= 1",
                "regression": ">= 0",
            },
        )  # fmt: skip
        if self.crossed == 1:
            raise InputError("crossed is 1; allowed are 0, or 2 and more parts")
        if not (self.rule.temperature > 0 or self.rule.floor > 0):
            raise InputError(f"rule is {self.rule!r}; its temperature or floor must be above 0")
        if self.credit not in {"action", "selection"}:
            raise InputError(f"credit is {self.credit!r}; allowed are action and selection")


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
    passing: Passing | None = None,
) -> TrainingResult:
    """Return a policy improved by logged feedback.

    Args:
        tune: trainer for the kept steps; default: trees on top of `start`.
        folder: checkpoint folder; an interrupted run resumes and gives identical bytes.
        passing: for action credit, maps causes to correct actions; None: causes are correct.

    Raises:
        InputError: too few questions, or the log has none of the training questions.
        DataError: the folder belongs to another run, or the extra ``evidence`` is not installed.

    Source: Dong et al., RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment
    (2023), algorithm 1; the credit of steps departs from it, see the module.
    """
    how = settings or RaftSettings()
    parts = crossed(tasks, how.crossed, seed) if how.crossed else []
    own, judged = (tasks, tasks) if parts else split(tasks, how.held_out, seed)
    told = None if log is None else _told(log, own)
    run = _Run(how, tune or TreesOnTop(), start, own, judged, parts, seed, sample, told, passing)
    checkpoints = None
    if folder is not None:
        about = about_run(how, seed, tasks, start)
        about |= {"tune": digest_of(run.tune), "passing": digest_of(passing)}
        about |= {"log": None if told is None else digest_of_log(told)}
        checkpoints = Checkpoints(folder, about)
    state = run.begin() if checkpoints is None else run.resumed(checkpoints)
    while state.stopped is None:
        state = run.round(state)
        if checkpoints is not None:
            checkpoints.save(len(state.rounds), state.arrays())
    return TrainingResult(state.best, tuple(state.rounds), state.before, state.stopped)


def _told(log: Sequence[Walk], learned: Sequence[Task]) -> list[Walk]:
    known = {task.id for task in learned}
    told = [one for one in log if one.task in known]
    if not told:
        raise InputError(
            f"the log has {len(log)} selections of {len({one.task for one in log})} questions, of "
            f"which none is among the {len(known)} training questions; pass their log"
        )
    return told


# -- one run --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _State:
    """State between two rounds."""

    now: Scorer
    best: Scorer
    before: float
    best_reward: float
    rounds: list[Round]
    logged: Logged
    since: int
    stopped: Stopped | None = None

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        found: dict[str, NDArray[np.generic]] = {}
        for name, scorer in (("now", self.now), ("best", self.best)):
            found |= {f"{name}/{key}": array for key, array in scorer_state(scorer).items()}
        told = {
            name: [(sorted(actions), reward) for actions, reward in of_one]
            for name, of_one in self.logged.items()
        }
        found["logged"] = np.frombuffer(json.dumps(told).encode(), np.uint8).copy()
        found["rounds"] = np.array([[r.reward, r.best, r.kept, r.held_out] for r in self.rounds])
        found["numbers"] = np.array([self.before, self.best_reward, self.since])
        found["stopped"] = np.frombuffer((self.stopped or "-").encode(), np.uint8).copy()
        return found


@dataclass(frozen=True, slots=True)
class _Run:
    """Constants of a run."""

    how: RaftSettings
    tune: Tuner
    start: Scorer
    learned: Sequence[Task]
    judged: Sequence[Task]
    parts: Sequence[tuple[Sequence[Task], Sequence[Task]]]
    seed: int
    sample: Sampler
    told: Sequence[Walk] | None
    passing: Passing | None

    def begin(self) -> _State:
        before = mean_reward(self.judged, self._greedy(self.start, self.judged))
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
            {
                name: [(frozenset(actions), reward) for actions, reward in of_one]
                for name, of_one in json.loads(arrays["logged"].tobytes()).items()
            },
            int(since),
            None if stopped == "-" else cast("Stopped", stopped),
        )  # fmt: skip

    def round(self, state: _State) -> _State:
        number = len(state.rounds)
        log = self._log(state.now, number)
        rewards = np.array([one.reward for one in log])
        if not np.isfinite(rewards).all():
            return self._ended(state, "not finite")
        by_action = self.how.credit == "action"
        logged = _joined(state.logged, by_task(log)) if by_action else {}
        known = {name: causes(of_one) for name, of_one in logged.items()}
        learned = partial(self._learned, state.now, log, known, number)
        try:
            now, kept = learned(self.learned)
            if now is None:
                return self._ended(state, "nothing to learn")
            rewards_of = self._crossed(learned) if self.parts else self._greedy(now, self.judged)
            reward = mean_reward(self.judged, rewards_of)
        except FloatingPointError as wrong:
            _log.warning(
                "training stopped in round %d: %s; keeping the last good round", number, wrong
            )
            return self._ended(state, "not finite")
        done = Round(float(rewards.mean()), keep(log)[0], kept, reward)
        return self._after(state, now, done, logged)

    def _greedy(self, scorer: Scorer, by: Sequence[Task]) -> dict[str, float]:
        return greedy_rewards(by, scorer, self.how.rule, self.sample)

    def _crossed(self, learned: _Learned) -> dict[str, float]:
        """Return the reward of all questions, each by the policy trained without its part."""
        rewards: dict[str, float] = {}
        for others, own in self.parts:
            found, _ = learned(others)
            rewards |= self._greedy(self.start if found is None else found, own)
        return rewards

    def _learned(
        self, now: Scorer, log: Sequence[Walk], known: Credits, number: int, of: Sequence[Task]
    ) -> tuple[Scorer | None, int]:
        """Return a round's policy and its number of examples; None without examples."""
        by_action = self.how.credit == "action"
        names = {task.id for task in of}
        log = [one for one in log if one.task in names]
        examples = self._steps(keep(log)[1], log) if log else []
        sure = self._sure(known, of) if by_action else {}
        for turn in range(self.how.turns if by_action else 1):
            examples += self._visits(of, sure, (now,) if turn else (None, now), number)
            if not examples:
                return None, 0
            now = self.tune(Examples.joined(examples), self.start, seed=self.seed + number)
        return now, len(examples)

    def _log(self, now: Scorer, number: int) -> Sequence[Walk]:
        if number == 0 and self.told is not None:
            return self.told
        seed = 1_000_003 * self.seed + number
        return self.sample(self.learned, now, self.how.rule, each=self.how.each, seed=seed)

    def _steps(self, kept: Mapping[str, Walk], log: Sequence[Walk]) -> list[Examples]:
        """Return training steps of kept selections: all steps, or only stop and expand."""
        only = () if self.how.credit == "selection" else (STOP, EXPAND)
        means = {
            name: float(np.mean([reward for _, reward in of_one]))
            for name, of_one in by_task(log).items()
        }
        return [part for name, one in kept.items() for part in above(one, means[name], only=only)]

    def _sure(self, known: Credits, of: Sequence[Task]) -> Credits:
        """Return the correct actions of some questions with their probabilities."""
        own = {task.id: known[task.id] for task in of if task.id in known}
        sure = own if self.passing is None else self.passing(of, own)
        return {
            name: {action: one for action, one in right.items() if one >= self.how.least}
            for name, right in sure.items()
        }

    def _visits(
        self, of: Sequence[Task], sure: Credits, scorers: Sequence[Scorer | None], number: int
    ) -> list[Examples]:
        """Return labels in the states that some scorers visit; None: the expert."""
        found = []
        for task in of:
            expert = CreditedExpert(sure.get(task.id, {}))
            for scorer in scorers if expert.right else ():
                rng = visiting(self.seed, number, task.id)
                found += visit(task, expert, scorer, self.how.others, rng=rng)
        return found

    def _after(self, state: _State, now: Scorer, done: Round, logged: Logged) -> _State:
        better = done.held_out > state.best_reward
        worse = done.held_out < state.best_reward - self.how.regression
        after = _State(
            now=state.best if worse else now,
            best=state.best if worse else now,
            before=state.before,
            best_reward=max(done.held_out, state.best_reward),
            rounds=[*state.rounds, done],
            logged=logged,
            since=0 if better else state.since + 1,
        )
        if after.since >= self.how.patience:
            after.stopped = "early"
        elif len(after.rounds) >= self.how.rounds:
            after.stopped = "rounds"
        return after

    @staticmethod
    def _ended(state: _State, why: Stopped) -> _State:
        state.stopped = why
        return state


def visiting(seed: int, number: int, name: str) -> np.random.Generator:
    """Return the random stream of a question's visits in a round.

    It differs from every stream of `walks`, because sampled selections must not decide which states
    are visited.

    >>> visiting(0, 1, "q").random() == visiting(1, 0, "q").random()
    False
    """
    return stream(seed, f"{number}/visit/{name}")


def _joined(before: Logged, after: Logged) -> Logged:
    """Return all logged selections of each question, from any policy."""
    return {
        name: [*before.get(name, ()), *after.get(name, ())] for name in sorted({*before, *after})
    }
