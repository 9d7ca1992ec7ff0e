"""From outcomes to states: one learner per decision point, replicas that follow it, relearning."""

from __future__ import annotations

from steersman.learn.bases import Bases, StoredBases
from steersman.learn.batch import BatchDone
from steersman.learn.learner import LearnerSettings, run_learner
from steersman.learn.rebuild import Rebuilt, rebuild
from steersman.learn.replica import Replica, catch_up, follow, load, replay, state_at
from steersman.learn.verify import Verified, verify

__all__ = [
    "Bases",
    "BatchDone",
    "LearnerSettings",
    "Rebuilt",
    "Replica",
    "StoredBases",
    "Verified",
    "catch_up",
    "follow",
    "load",
    "rebuild",
    "replay",
    "run_learner",
    "state_at",
    "verify",
]
