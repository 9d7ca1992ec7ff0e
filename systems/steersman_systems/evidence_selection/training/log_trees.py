"""Training of trees on a decision point's own log, by reward-weighted regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.db.held_out import is_held_out
from steersman.errors import InputError
from steersman.learning.held_out import SHARE
from steersman_systems.evidence_selection.training.examples import Examples
from steersman_systems.evidence_selection.training.logged_selections import walk_of
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings, grow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.db.logged_choices import StoredSelection
    from steersman.policies import SequenceTrees

FEWEST = 100
SETTINGS = TreeSettings(trees=60, learning_rate=0.1, least=20, ridge=5.0)
"""Settings as for RAFT's trees on top of a policy."""


def grown(
    declared: SequenceTrees,
    log: Sequence[StoredSelection],
    *,
    settings: TreeSettings = SETTINGS,
    seed: int = 0,
) -> SequenceTrees:
    """Return a policy whose trees raise the probability of selections with above-average reward.

    Each step of a selection is weighted by the reward above the mean; selections below the mean are
    left out. The trees add to the declared start weights; earlier trees are not used.

    Trap: each request has one selection, so the baseline is the mean over other requests. If some
    requests are much easier, the comparison is noisy. Evaluate the result on other selections
    before it goes live.

    Args:
        log: selections with rewards, 100 or more.

    Raises:
        InputError: too few selections, equal rewards, or a temperature other than 1.
        DataError: selections of other rules, or the extra ``evidence`` is not installed.

    Source: Peters & Schaal, Reinforcement Learning by Reward-Weighted Regression (2007); Dong et
    al., RAFT (2023), with one selection of each question.
    """
    if declared.rule.temperature != 1.0:
        raise InputError(
            f"temperature is {declared.rule.temperature:g}; trees need a softmax temperature of 1; "
            "declare 1, and scale the start weights to match"
        )
    rewards = np.array([one.reward for one in log])
    if len(log) < FEWEST or np.ptp(rewards) == 0.0:
        raise InputError(
            f"{len(log)} selections, rewards from {rewards.min(initial=1.0):g} to "
            f"{rewards.max(initial=0.0):g}; at least {FEWEST} with different rewards are needed"
        )
    beyond = np.maximum(rewards - rewards.mean(), 0.0)
    weights = beyond / beyond[beyond > 0.0].mean()
    parts = []
    for one, weight in zip(log, weights.tolist(), strict=True):
        if weight == 0.0:
            continue
        for taken in walk_of(one, declared.form).taken:
            right = np.zeros(len(taken.rows))
            right[taken.chosen] = 1.0
            parts.append(Examples.step(taken.rows, right, weight))
    start = _Start(declared)
    return declared.holding(
        grow(Examples.joined(parts), settings, start=start, loss="softmax", seed=seed)
    )


class _Start:
    """Scorer that uses the start weights only."""

    def __init__(self, policy: SequenceTrees) -> None:
        self._policy = policy

    def scores(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._policy.starting(rows)


def apart(
    log: Sequence[StoredSelection], *, share: float = 0.2
) -> tuple[list[StoredSelection], list[StoredSelection]]:
    """Return training selections and test selections of different units.

    A hash of the unit name selects the test units, so they never change. The publish guard holds
    out a subset of them by the same hash, so it never judges by training units.

    Args:
        share: share of test units, in [0.1, 1); the guard holds out one tenth.

    Raises:
        InputError: one side has no unit, or the share is out of range.
    """
    if not SHARE <= share < 1.0:
        raise InputError(f"the share of test units is {share!r}; allowed is [{SHARE}, 1)")
    parts: tuple[list[StoredSelection], list[StoredSelection]] = ([], [])
    for one in log:
        parts[is_held_out(one.unit, share)].append(one)
    if not all(parts):
        units = len({one.unit for one in log})
        raise InputError(
            f"{units} units give {len(parts[0])} training selections and {len(parts[1])} test "
            "selections; log more units"
        )
    return parts
