"""Online learner: learning, replicas, publishing, rebuilds and promotion of policy states.

Names of the publishing side load on first use, so that the service does not import off-policy
evaluation.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from steersman.learn.bases import Bases, StoredBases
from steersman.learn.batch import BatchDone
from steersman.learn.crediting import Credit, credit_of
from steersman.learn.evidence import Evidence, read_evidence
from steersman.learn.learner import LearnerSettings, run_learner
from steersman.learn.promoting import Promoted, check_promotable, promote
from steersman.learn.rebuild import Rebuilt, rebuild
from steersman.learn.replica import Replica, catch_up, follow, load, replay, state_at
from steersman.learn.reproduce import reproduce
from steersman.learn.retracting import Retracted, retract_version, take_out
from steersman.learn.verify import Verified, verify

if TYPE_CHECKING:
    from steersman.learn.drift import check_drift
    from steersman.learn.guarding import Reason
    from steersman.learn.held_out import HeldOutReport
    from steersman.learn.publishing import Signer, publish
    from steersman.learn.releasing import Known, Marks, mark_point, read_known, release_version
    from steersman.learn.shipping import Registry, Shipped, ShippingSettings, run_shipping
    from steersman.learn.spreading import spread
    from steersman.learn.versions import compare_versions

__all__ = [
    "Bases",
    "BatchDone",
    "Credit",
    "Evidence",
    "HeldOutReport",
    "Known",
    "LearnerSettings",
    "Marks",
    "Promoted",
    "Reason",
    "Rebuilt",
    "Registry",
    "Replica",
    "Retracted",
    "Shipped",
    "ShippingSettings",
    "Signer",
    "StoredBases",
    "Verified",
    "catch_up",
    "check_drift",
    "check_promotable",
    "compare_versions",
    "credit_of",
    "follow",
    "load",
    "mark_point",
    "promote",
    "publish",
    "read_evidence",
    "read_known",
    "rebuild",
    "release_version",
    "replay",
    "reproduce",
    "retract_version",
    "run_learner",
    "run_shipping",
    "spread",
    "state_at",
    "take_out",
    "verify",
]

_HOMES = {
    "drift": "check_drift",
    "held_out": "HeldOutReport",
    "guarding": "Reason",
    "publishing": "Signer publish",
    "releasing": "Known Marks mark_point read_known release_version",
    "shipping": "Registry Shipped ShippingSettings run_shipping",
    "spreading": "spread",
    "versions": "compare_versions",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
