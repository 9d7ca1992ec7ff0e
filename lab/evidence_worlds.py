"""Synthetic sequences with known best selections, for tests of learners.

Each question has a bridge among its candidates and, once it is picked, a target. Their features are
mixed with noise columns and decoys. Before the bridge is picked, the target looks like a decoy. A
selection earns .3 for the bridge and .7 for the target, minus .1 for every other pick. The best
selection is bridge, target, stop, with reward 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.policies.sequence import STOP
from steersman_systems.evidence_selection.training.task import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

COLUMNS = ("asked", "named", "fits", "noise", "picked", "bridged", "is_stop")
BEST = 1.0
"""Reward of the best selection of every question."""
_BRIDGE, _TARGET, _WASTE = 0.3, 0.7, 0.1


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTask:
    """Synthetic question; a state has the picks, and whether stop was chosen.

    Args:
        id: question id.
        rows: (n, 4) asked, named, fits and noise of each candidate, in [0, 1].
        bridge: index of the candidate that must come first.
        target: index of the candidate that it leads to.
        picks: maximum picks, ≥ 2.
    """

    id: str
    rows: Floats = field(repr=False)
    bridge: int
    target: int
    picks: int = 4

    @property
    def group(self) -> str:
        """The id: each question is its group."""
        return self.id

    def begin(self) -> tuple[tuple[int, ...], bool]:
        """Return the state before the first pick."""
        return (), False

    def options(self, state: tuple[tuple[int, ...], bool]) -> Options | None:
        """Return the remaining candidates, and stop."""
        picked, stopped = state
        if stopped or len(picked) >= self.picks:
            return None
        left = self._left(picked)
        bridged = float(self.bridge in picked)
        rows = np.zeros((len(left) + 1, len(COLUMNS)))
        rows[:-1, :4] = self.rows[left]
        rows[:-1, 1] *= bridged  # `named` is visible only after the bridge
        rows[:, 4], rows[:, 5] = len(picked) / self.picks, bridged
        rows[-1, 5] = bridged + float(self.target in picked)
        rows[-1, 6] = 1.0
        return Options([*(f"c{place}" for place in left), STOP], rows, len(left))

    def _left(self, picked: tuple[int, ...]) -> list[int]:
        return [place for place in range(len(self.rows)) if place not in picked]

    def take(self, state: tuple[tuple[int, ...], bool], place: int) -> tuple[tuple[int, ...], bool]:
        """Return the state after an action."""
        picked, _ = state
        left = self._left(picked)
        return (picked, True) if place == len(left) else ((*picked, left[place]), False)

    def reward(self, state: tuple[tuple[int, ...], bool]) -> float:
        """Return the reward, in [0, 1]."""
        return self.worth(state[0])

    def potential(self, state: tuple[tuple[int, ...], bool]) -> float:
        """Return 0: no shaping."""
        return 0.0

    def worth(self, picked: tuple[int, ...]) -> float:
        """Return the reward of picks; the target counts only after its bridge."""
        bridged = self.bridge in picked
        reached = bridged and self.target in picked[picked.index(self.bridge) :]
        wasted = len(picked) - bridged - reached
        return max(0.0, _BRIDGE * bridged + _TARGET * reached - _WASTE * wasted)

    def every(self) -> Iterator[tuple[int, ...]]:
        """Yield every possible selection, for known answers."""
        for count in range(self.picks + 1):
            yield from permutations(range(len(self.rows)), count)


def made_up(count: int, *, seed: int, candidates: int = 10) -> list[SyntheticTask]:
    """Return synthetic questions.

    The bridge has the largest ``asked``. It names two candidates, of which the target has the
    larger ``fits``.

    Args:
        count: number of questions, ≥ 1.
        candidates: candidates per question, 4 to 100.

    Raises:
        InputError: a number is out of range.

    >>> task = made_up(1, seed=0)[0]
    >>> task.worth((task.bridge, task.target)), task.worth((task.target,))
    (1.0, 0.0)
    """
    if count < 1 or candidates not in range(4, 101):
        raise InputError(f"{count} questions of {candidates}; allowed: ≥ 1 and 4 to 100")
    rng = np.random.default_rng(seed)
    tasks = []
    for number in range(count):
        rows = rng.random((candidates, 4))
        rows[:, 0] *= 0.8
        rows[:, 1] = 0.0
        bridge, target, decoy = rng.choice(candidates, 3, replace=False).tolist()
        rows[bridge, 0] = 0.85 + 0.15 * rng.random()
        rows[[target, decoy], 1] = 1.0
        rows[target, 2], rows[decoy, 2] = 0.6 + 0.4 * rng.random(), 0.4 * rng.random()
        tasks.append(SyntheticTask(f"made-up-{seed}-{number}", rows, bridge, target))
    return tasks
