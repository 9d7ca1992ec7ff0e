"""Contract checks for policies, estimators and stores, as a product: run them over your own."""

from steersman.testing.estimators import check_estimator
from steersman.testing.policies import check_policy
from steersman.testing.store import check_store

__all__ = ["check_estimator", "check_policy", "check_store"]
