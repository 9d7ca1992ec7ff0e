"""Learned selectors: a scorer in an environment, with exact propensities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from steersman.policies.sequence import StepRule, sequence_propensity
from steersman_systems.evidence_selection.environment import Environment, Selection
from steersman_systems.evidence_selection.features import FEATURES
from steersman_systems.evidence_selection.tasks import EvidenceTask
from steersman_systems.evidence_selection.training.task import choose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.pool import Pool
    from steersman_systems.evidence_selection.tasks import OpenState
    from steersman_systems.evidence_selection.training.task import TakenStep

    Floats = NDArray[np.float64]

_SHOWN = 3
GREEDY = StepRule(temperature=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredSelector:
    """Picks by a scorer, step by step.

    Args:
        name: in reports.
        scorer: of the rows of `features`.
        environment: the rules.
        rule: how scores become probabilities; default: greedy.
        explain: whether it says which features spoke for each step; that takes one more scoring.
    """

    name: str
    scorer: Scorer
    environment: Environment = field(default_factory=Environment)
    rule: StepRule = GREEDY
    explain: bool = True

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return what it selects."""
        task = EvidenceTask(pool, self.environment)
        standing, taken = task.begin(), []
        why: list[Mapping[str, float]] = []
        while (options := task.options(standing)) is not None:
            one = choose(options, self.scorer, self.rule, rng=rng)
            taken.append(one)
            if self.explain:
                why.append(speaking_for(one, self.scorer))
            standing = task.take(standing, one.place)
        return _selection(self, standing, taken, why)


def _selection(
    selector: ScoredSelector,
    standing: OpenState,
    taken: list[TakenStep],
    why: list[Mapping[str, float]],
) -> Selection:
    state = standing.state
    steps = tuple(one.step for one in taken)
    ended = selector.environment.legal(state).ended
    return Selection(
        picked=tuple(state.pool.candidates[place].id for place in state.picked),
        steps=steps,
        propensity=sequence_propensity(steps),
        why=tuple(why),
        stopped="stop" if standing.stopped or ended is None else ended,
        brought=tuple(
            one.id for one, hops in zip(state.pool.candidates, state.pool.hops, strict=True) if hops
        ),
    )


def speaking_for(taken: TakenStep, scorer: Scorer) -> dict[str, float]:
    """Return the features that spoke most for a choice, with by how much.

    A feature speaks for the chosen action by what its score loses when the feature is replaced by
    its median among the actions that could have been taken instead.

    Returns:
        At most three features with what each adds to the score, the most first; none where there
        was nothing else to take.
    """
    if len(taken.rows) < 2:
        return {}
    row, others = taken.rows[taken.chosen], np.delete(taken.rows, taken.chosen, axis=0)
    ordered, half = np.sort(others, axis=0), len(others) // 2
    usual = (ordered[half] + ordered[-1 - half]) / 2.0  # the median, in a fifth of the time
    differ = np.flatnonzero(row != usual)
    rows = np.repeat(row[None], len(differ) + 1, axis=0)
    rows[np.arange(len(differ)), differ] = usual[differ]
    scores = scorer.scores(rows)
    adds = scores[-1] - scores[:-1]
    best = np.argsort(-adds, kind="stable")[:_SHOWN]
    return {FEATURES[differ[place]]: float(adds[place]) for place in best if adds[place] > 0.0}
