"""Training of sequence policies: behaviour cloning, RAFT and PPO.

Training trees needs the extra ``evidence``. Training networks and PPO needs the extra ``rl``
(modules ``network`` and ``ppo``). Trained policies are arrays that need only numpy.
"""

from __future__ import annotations

from steersman.learn.selecting.checkpoints import Checkpoints
from steersman.learn.selecting.cloning import CloneSettings, clone, visit
from steersman.learn.selecting.credit import causes, keep
from steersman.learn.selecting.examples import Examples
from steersman.learn.selecting.growing import apart, grown
from steersman.learn.selecting.judging import sequences_of
from steersman.learn.selecting.raft import RaftSettings, raft
from steersman.learn.selecting.rounds import Round, Sampler, Trained, split
from steersman.learn.selecting.sampling import walks_over
from steersman.learn.selecting.stored import (
    StoredSelection,
    StoredTask,
    form_in,
    judge_selections,
    stored_selections,
    walk_of,
)
from steersman.learn.selecting.task import (
    Expert,
    Options,
    Taken,
    Task,
    Walk,
    choose,
    stream,
    turn_stream,
    walk,
    walks,
)
from steersman.learn.selecting.trees import TreeSettings, grow
from steersman.learn.selecting.tuners import FreshTrees, TreesOnTop, Tuner

__all__ = [
    "Checkpoints",
    "CloneSettings",
    "Examples",
    "Expert",
    "FreshTrees",
    "Options",
    "RaftSettings",
    "Round",
    "Sampler",
    "StoredSelection",
    "StoredTask",
    "Taken",
    "Task",
    "Trained",
    "TreeSettings",
    "TreesOnTop",
    "Tuner",
    "Walk",
    "apart",
    "causes",
    "choose",
    "clone",
    "form_in",
    "grow",
    "grown",
    "judge_selections",
    "keep",
    "raft",
    "sequences_of",
    "split",
    "stored_selections",
    "stream",
    "turn_stream",
    "visit",
    "walk",
    "walk_of",
    "walks",
    "walks_over",
]
