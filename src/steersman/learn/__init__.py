"""From outcomes to states: one learner per decision point, replicas that follow it, relearning."""

from __future__ import annotations

from steersman.learn.batch import BatchDone
from steersman.learn.learner import LearnerSettings, run_learner
from steersman.learn.replica import Replica, catch_up, load, state_at

__all__ = [
    "BatchDone",
    "LearnerSettings",
    "Replica",
    "catch_up",
    "load",
    "run_learner",
    "state_at",
]
