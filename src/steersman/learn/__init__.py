"""From outcomes to states: one learner per decision point, replicas that follow it, relearning."""

from __future__ import annotations

from steersman.learn.bases import Bases, StoredBases
from steersman.learn.batch import BatchDone
from steersman.learn.crediting import Credit, credit_of
from steersman.learn.evidence import Evidence, read_evidence
from steersman.learn.held_out import HeldOutReport
from steersman.learn.learner import LearnerSettings, run_learner
from steersman.learn.promoting import Promoted, promote
from steersman.learn.publishing import Reason, Signer, publish
from steersman.learn.rebuild import Rebuilt, rebuild
from steersman.learn.replica import Replica, catch_up, follow, load, replay, state_at
from steersman.learn.reproduce import reproduce
from steersman.learn.verify import Verified, verify

__all__ = [
    "Bases",
    "BatchDone",
    "Credit",
    "Evidence",
    "HeldOutReport",
    "LearnerSettings",
    "Promoted",
    "Reason",
    "Rebuilt",
    "Replica",
    "Signer",
    "StoredBases",
    "Verified",
    "catch_up",
    "credit_of",
    "follow",
    "load",
    "promote",
    "publish",
    "read_evidence",
    "rebuild",
    "replay",
    "reproduce",
    "run_learner",
    "state_at",
    "verify",
]
