"""Training of a selector by RAFT, from feedback on whole selections without gold passages.

The feedback is whether the selected passages contain an answer. Five passages of a good policy
nearly always or nearly never do, which teaches little. So short, exploring selections are logged
first. They show which passages contain an answer, and `steersman_systems.evidence_selection.chains`
assigns credit to passages that lead there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.answers import contains, in_words
from steersman_systems.evidence_selection.chains import Chains
from steersman_systems.evidence_selection.features import FEATURES
from steersman_systems.evidence_selection.reward import RewardTerms
from steersman_systems.evidence_selection.training.raft import FreshTrees, RaftSettings, TreesOnTop
from steersman_systems.evidence_selection.training.raft import raft as raft_rounds
from steersman_systems.evidence_selection.training.task import walks
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.tasks import EvidenceTask
    from steersman_systems.evidence_selection.training.raft import Tuner
    from steersman_systems.evidence_selection.training.rounds import TrainingResult
    from steersman_systems.evidence_selection.training.task import Walk

    Sampler = Callable[..., list[Walk]]

EXPLORING = StepRule(leading=8, temperature=1.0, floor=0.1)
"""Sampling rule of the feedback log. With few leading candidates, a linked passage is reached
through the passage that names it, and both earn credit. On hotpotqa, half of all gold passages
earned credit with twenty leading, two thirds with eight. Eight was chosen by the gold of the
reported questions, so the figures are optimistic (docs/adr/0023)."""
EACH = 96
"""Logged selections per question."""
REWARD = RewardTerms()
"""Reward of a logged selection: 1 if it contains an answer, else 0. It is the only feedback;
gold is not read."""
TREES = FreshTrees(TreeSettings(trees=100, learning_rate=0.06, rows=0.7))
"""Trainer without gold: new trees, because credit covers nearly every passage. Trees on top of a
start without gold were slightly worse on both sets. Each tree samples examples, because credit
is uncertain (docs/adr/0027)."""
UPON = TreesOnTop()
"""Trainer on top of a start that knows more than feedback, such as a clone of gold."""
LEAST_TELLING = 0.2
"""Minimum share of questions whose feedback varies."""
PARTS = 3
"""Cross-validation parts: all questions judge, and all train the final policy (docs/adr/0027)."""
PICKS = 2
"""Passages per logged selection; with five, 55 % of hotpotqa's questions always had an answer."""


def exploring() -> NetworkScorer:
    """Return the logging policy: fused scores plus a weight for linked passages.

    >>> exploring().columns == len(FEATURES)
    True
    """
    weights = np.zeros(len(FEATURES))
    weights[FEATURES.index("fused")] = 3.0
    weights[FEATURES.index("named_by_selected")] = 4.0
    return NetworkScorer.linear(weights)


def feedback(
    tasks: Sequence[EvidenceTask],
    *,
    picks: int = PICKS,
    each: int = EACH,
    terms: RewardTerms = REWARD,
    seed: int = 0,
    sample: Sampler = walks,
) -> list[Walk]:
    """Return logged selections with propensities and rewards.

    Args:
        picks: passages per selection, 1 to 8.
        each: selections per question, ≥ 1.
    """
    short = [
        replace(
            task,
            terms=terms,
            environment=replace(
                task.environment,
                limits=replace(task.environment.limits, picks=picks, may_stop=False),
            ),
        )
        for task in tasks
    ]
    return sample(short, exploring(), EXPLORING, each=each, seed=seed)


def telling_share(tasks: Sequence[EvidenceTask], log: Sequence[Walk]) -> tuple[int, int]:
    """Return the number of questions whose feedback varies, and of all questions.

    The feedback is whether the picked passages contain an answer.
    """
    of = {task.id: task for task in tasks}
    holds: dict[tuple[str, str], bool] = {}
    came: dict[str, set[bool]] = {}
    for walk in log:
        task, picked = of[walk.task], {one.step.action for one in walk.taken}
        for name in picked:
            if (task.id, name) not in holds:
                holds[task.id, name] = _holds_answer(task, name)
        came.setdefault(task.id, set()).add(any(holds[task.id, name] for name in picked))
    return sum(len(one) > 1 for one in came.values()), len(came)


def _holds_answer(task: EvidenceTask, action: str) -> bool:
    collection = task.pool.collection
    if action not in collection.place_of:  # the action expand
        return False
    one = collection.candidates[collection.place_of[action]]
    right = in_words(task.pool.question.answers)
    return contains(f"{one.title} {one.text}", right)


def improved(
    tasks: Sequence[EvidenceTask],
    start: Scorer,
    *,
    log: Sequence[Walk] | None = None,
    terms: RewardTerms = REWARD,
    rounds: int = 1,
    tune: Tuner | None = None,
    regression: float = 0.05,
    seed: int = 0,
    sample: Sampler = walks,
) -> TrainingResult:
    """Return a policy trained by RAFT on a log of short selections.

    By default the trained scorer does not add to the start policy. The start decides which states
    are visited, and is the fallback. That suits a start without gold only; else see `bettered`.

    Args:
        log: logged selections; None: sampled now.
        terms: reward terms of the log and of the rounds, instead of the questions' terms. The
            reward should be 0 or 1, because each passage's credit is its probability to earn it.
        tune: trainer; None: `TREES`.
        regression: drop of the held-out reward that restores the start, ≥ 0.
    """
    told = feedback(tasks, terms=terms, seed=seed, sample=sample) if log is None else log
    how = RaftSettings(
        rounds=rounds, each=16, credit="action", crossed=PARTS, regression=regression
    )
    asked = _worth(tasks, terms)
    return raft_rounds(
        asked, start, how, tune=tune or TREES, seed=seed, log=told, sample=sample, passing=Chains()
    )


def _worth(tasks: Sequence[EvidenceTask], terms: RewardTerms) -> list[EvidenceTask]:
    return [replace(task, terms=terms) for task in tasks]


def bettered(
    tasks: Sequence[EvidenceTask],
    start: Scorer,
    *,
    log: Sequence[Walk] | None = None,
    seed: int = 0,
    sample: Sampler = walks,
) -> TrainingResult:
    """Return a policy trained by RAFT on top of a start that knows more, such as a clone of gold.

    The start stays unless the result has a higher held-out reward. Improvements are rare, because
    the clone has seen the gold of these questions. Rounds that were only not worse there were worse
    on fresh questions.

    Args:
        log: logged selections; None: sampled now.
    """
    found = improved(tasks, start, log=log, tune=UPON, regression=0.0, seed=seed, sample=sample)
    better = any(one.held_out > found.before for one in found.rounds)
    return found if better else replace(found, scorer=start)


def from_feedback(
    tasks: Sequence[EvidenceTask], scorer: Scorer, seed: int, *, sample: Sampler = walks
) -> Scorer:
    """Return a scorer trained from feedback without any gold.

    Raises:
        DataError: as for `raft`.
    """
    log = _telling_log(tasks, seed, sample)
    return improved(tasks, scorer, log=log, seed=seed, sample=sample).scorer


def raft(
    tasks: Sequence[EvidenceTask], scorer: Scorer, seed: int, *, sample: Sampler = walks
) -> Scorer:
    """Return a clone of gold with RAFT on top; see `bettered`.

    Raises:
        DataError: feedback is constant for more than four in five questions, so training would only
            reproduce the logging policy.
    """
    log = _telling_log(tasks, seed, sample)
    return bettered(tasks, scorer, log=log, seed=seed, sample=sample).scorer


def _telling_log(tasks: Sequence[EvidenceTask], seed: int, sample: Sampler) -> list[Walk]:
    log = feedback(tasks, seed=seed, sample=sample)
    telling, asked = telling_share(tasks, log)
    if telling < LEAST_TELLING * asked:
        told = f"feedback varies for {telling} of {asked} questions ({telling / asked:.0%})"
        raise DataError(
            f"{told}; it takes {LEAST_TELLING:.0%} to learn from whether the answer stands in what "
            "is picked; give short answers, or another reward"
        )
    return log


def raft_then_ppo(
    tasks: Sequence[EvidenceTask],
    scorer: Scorer,
    seed: int,
    *,
    terms: RewardTerms = REWARD,
    begin: Callable[[Sequence[EvidenceTask], Scorer, int], Scorer] | None = None,
    sample: Sampler = walks,
) -> Scorer:
    """Return a clone of gold trained by RAFT, then by PPO near the RAFT policy.

    Args:
        terms: reward and shaping terms of PPO.
        begin: start of PPO from (tasks, scorer, seed); None: `raft`.

    Raises:
        DataError: the extra ``rl`` is not installed (checked first), or feedback is too sparse, as
            for `raft`.
    """
    from steersman_systems.evidence_selection.training.ppo import PpoSettings, ppo  # noqa: PLC0415 - the extra rl

    how = PpoSettings(rounds=4, each=8, rule=StepRule(10, 1.0, 0.05))
    start = partial(raft, sample=sample) if begin is None else begin
    begun = start(tasks, scorer, seed)
    return ppo(_worth(tasks, terms), begun, how, seed=seed, sample=sample).scorer
