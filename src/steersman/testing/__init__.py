"""Contract checks for your own policies, estimators and stores."""

from steersman.testing.estimators import check_estimator
from steersman.testing.policies import check_policy
from steersman.testing.store import check_store

__all__ = ["check_estimator", "check_policy", "check_store"]
