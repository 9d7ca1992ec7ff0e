"""Improvement of a selector from feedback on whole selections, without gold passages.

The feedback is whether an answer is in the selected passages. In five passages of a good policy the
answer is nearly always or nearly never present, which teaches little. So short, exploring
selections are logged first. They show which passages contain an answer, and
`steersman_systems.evidence_selection.chains` assigns credit to the passages that lead there.
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
"""How feedback is drawn first. Few lead, so that what only a link leads to is reached by way of
what names it, and both earn credit: on hotpotqa half of all gold passages did with twenty that
lead, two thirds with eight. So eight was chosen by the gold of the very questions on which figures
are reported, which flatters them (docs/adr/0023)."""
EACH = 96
"""Selections that are logged of each question."""
REWARD = RewardTerms()
"""What a logged selection is worth: 1 where an answer stands in it, else 0; gold is not looked at.
Learning gets no other feedback on what was picked."""
TREES = FreshTrees(TreeSettings(trees=100, learning_rate=0.06, rows=0.7))
"""What learns without gold: trees grown from scratch, since credit covers nearly every passage.
Trees on top of a start without gold were a little worse on either set. Each is grown from a share
of the examples, as credit is uncertain (docs/adr/0027)."""
UPON = TreesOnTop()
"""What learns on top of a start that knows more than feedback tells, such as a clone of gold."""
LEAST_TELLING = 0.2
"""Share of the questions for which what comes back must depend on what is picked."""
PARTS = 3
"""Of the questions: each judges what was learned from the others, so that all judge, and all are
learned from (docs/adr/0027)."""
PICKS = 2
"""Passages of a logged selection: with five, 55 % of hotpotqa's questions always came out right."""


def exploring() -> NetworkScorer:
    """Return the policy that logs feedback first: fused scores, and more for what is named.

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
    """Return logged selections with their propensities and the feedback on each.

    Args:
        picks: passages of a selection, 1 to 8.
        each: selections of each question, ≥ 1.
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

    Whether an answer stands in what was picked is what `improved` learns from.
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
    if action not in collection.place_of:  # expanding
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
    """Return what RAFT makes of a policy from a log of short selections.

    What learns by default is not built upon the start, which says what is visited, and is what one
    goes back to: right for a start without gold alone. See `bettered` for any other.

    Args:
        log: what was logged; None: it is drawn now.
        terms: what a selection is worth, whatever the questions' own terms are: those of the log,
            by which rounds are judged as well. What is learned from is which passage alone brings
            the reward, so it should be 0 or 1.
        tune: what learns; None: `TREES`.
        regression: fall of the held-out reward from which on the start is gone back to, ≥ 0.
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
    """Return what RAFT makes of a policy that knows more than feedback tells, as a clone of gold.

    It is built upon the start, and the start stays unless the result selects better for the
    held-out questions. A clone of gold has seen the gold of these, so that is hard, and seldom: but
    rounds that were merely no worse there were worse on fresh questions.

    Args:
        log: what was logged; None: it is drawn now.
    """
    found = improved(tasks, start, log=log, tune=UPON, regression=0.0, seed=seed, sample=sample)
    better = any(one.held_out > found.before for one in found.rounds)
    return found if better else replace(found, scorer=start)


def from_feedback(
    tasks: Sequence[EvidenceTask], scorer: Scorer, seed: int, *, sample: Sampler = walks
) -> Scorer:
    """Return a scorer learned from feedback where nothing knows the gold.

    Raises:
        DataError: as for `raft`.
    """
    log = _telling_log(tasks, seed, sample)
    return improved(tasks, scorer, log=log, seed=seed, sample=sample).scorer


def raft(
    tasks: Sequence[EvidenceTask], scorer: Scorer, seed: int, *, sample: Sampler = walks
) -> Scorer:
    """Return a clone of gold bettered by RAFT, upon which it is built; see `bettered`.

    Raises:
        DataError: what comes back is the same whatever is picked, for more than four questions of
            five: what would be learned is the policy that logged.
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
    """Return a clone of gold bettered by RAFT and then by PPO, which stays near what RAFT found.

    Args:
        terms: value of a selection for PPO, and the shaping terms.
        begin: what PPO is put upon, of (tasks, scorer, seed); None: `raft`.

    Raises:
        DataError: the extra ``rl`` is not installed, which is said before anything is learned; or
            feedback says too little, as for `raft`.
    """
    from steersman_systems.evidence_selection.training.ppo import PpoSettings, ppo  # noqa: PLC0415 - the extra rl

    how = PpoSettings(rounds=4, each=8, rule=StepRule(10, 1.0, 0.05))
    start = partial(raft, sample=sample) if begin is None else begin
    begun = start(tasks, scorer, seed)
    return ppo(_worth(tasks, terms), begun, how, seed=seed, sample=sample).scorer
