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
    """Selector that uses a scorer at each step.

    Args:
        name: name in reports.
        scorer: scores rows of `features`.
        environment: selection rules.
        rule: maps scores to probabilities; default: greedy.
        explain: whether to report reasons for each step, which costs one more scoring.
    """

    name: str
    scorer: Scorer
    environment: Environment = field(default_factory=Environment)
    rule: StepRule = GREEDY
    explain: bool = True

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return a selection."""
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
    """Return the features that favoured a choice most, with their contributions.

    The contribution of a feature is the drop of the action's score when the feature is replaced by
    its median among the alternatives.

    Returns:
        At most three features, largest contribution first; {} without an alternative.
    """
    if len(taken.rows) < 2:
        return {}
    row, others = taken.rows[taken.chosen], np.delete(taken.rows, taken.chosen, axis=0)
    ordered, half = np.sort(others, axis=0), len(others) // 2
    usual = (ordered[half] + ordered[-1 - half]) / 2.0  # median, five times as fast as numpy's
    differ = np.flatnonzero(row != usual)
    rows = np.repeat(row[None], len(differ) + 1, axis=0)
    rows[np.arange(len(differ)), differ] = usual[differ]
    scores = scorer.scores(rows)
    adds = scores[-1] - scores[:-1]
    best = np.argsort(-adds, kind="stable")[:_SHOWN]
    return {FEATURES[differ[place]]: float(adds[place]) for place in best if adds[place] > 0.0}
