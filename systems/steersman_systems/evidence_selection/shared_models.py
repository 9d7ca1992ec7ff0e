"""Training shared by several policies of an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.evidence_selection.experts import GoldExpert
from steersman_systems.evidence_selection.raft_training import raft
from steersman_systems.evidence_selection.training.behaviour_cloning import clone

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.pool import Pool
    from steersman_systems.evidence_selection.tasks import EvidenceTask
    from steersman_systems.evidence_selection.training.behaviour_cloning import CloneSettings


class SharedTraining:
    """The clone of gold, and what RAFT makes of it, learned once from the same questions.

    ``+BC``, ``+BC+RAFT`` and ``+BC+RAFT+PPO`` begin with one clone, and every weighting of PPO's
    reward with what RAFT made of it. Learning is the same to the byte each time, so no
    selections change. It holds what was learned and the pools it was learned from as long as it
    lives, and goes to other processes empty: what is learned there is learned there once.
    """

    def __init__(self) -> None:
        self._learned: dict[Hashable, tuple[Sequence[object], Scorer]] = {}

    def __reduce__(self) -> tuple[type[SharedTraining], tuple[()]]:
        """Travel without what was learned: it is known by objects of this process."""
        return SharedTraining, ()

    def clone(
        self,
        pools: Sequence[Pool],
        tasks: Sequence[EvidenceTask],
        settings: CloneSettings,
        seed: int,
    ) -> Scorer:
        """Return the clone of an expert with the gold passages, see `learn.selecting.clone`."""
        limits = tuple({task.environment.limits for task in tasks})
        return self._once(
            (limits, settings, seed), pools,
            lambda: clone(tasks, GoldExpert(), settings, seed=seed),
        )  # fmt: skip

    def raft(self, tasks: Sequence[EvidenceTask], scorer: Scorer, seed: int) -> Scorer:
        """Return what RAFT makes of a clone; see `raft_training.raft`."""
        return self._once(seed, [scorer], lambda: raft(tasks, scorer, seed))

    def _once(self, how: Hashable, of: Sequence[object], learn: Callable[[], Scorer]) -> Scorer:
        key = (how, tuple(map(id, of)))
        if key not in self._learned:
            # What it is known by is held with it, so that no other object can get its identity.
            self._learned[key] = (tuple(of), learn())
        return self._learned[key][1]
