"""Cache of training shared by several policies of an evaluation."""

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
    """Cache of the gold clone and its RAFT result, trained once per set of questions.

    ``+BC``, ``+BC+RAFT`` and ``+BC+RAFT+PPO`` share one clone; all shaping weights of PPO share one
    RAFT result. Training is deterministic, so caching does not change selections. The cache keeps
    its models and pools in memory, and is empty in other processes.
    """

    def __init__(self) -> None:
        self._learned: dict[Hashable, tuple[Sequence[object], Scorer]] = {}

    def __reduce__(self) -> tuple[type[SharedTraining], tuple[()]]:
        """Pickle without the cache, whose keys are objects of this process."""
        return SharedTraining, ()

    def clone(
        self,
        pools: Sequence[Pool],
        tasks: Sequence[EvidenceTask],
        settings: CloneSettings,
        seed: int,
    ) -> Scorer:
        """Return the clone of an expert with the gold passages."""
        limits = tuple({task.environment.limits for task in tasks})
        return self._once(
            (limits, settings, seed), pools,
            lambda: clone(tasks, GoldExpert(), settings, seed=seed),
        )  # fmt: skip

    def raft(self, tasks: Sequence[EvidenceTask], scorer: Scorer, seed: int) -> Scorer:
        """Return the clone improved by RAFT; see `raft_training.raft`."""
        return self._once(seed, [scorer], lambda: raft(tasks, scorer, seed))

    def _once(self, how: Hashable, of: Sequence[object], learn: Callable[[], Scorer]) -> Scorer:
        key = (how, tuple(map(id, of)))
        if key not in self._learned:
            # Keeping the keyed objects alive prevents reuse of their id().
            self._learned[key] = (tuple(of), learn())
        return self._learned[key][1]
