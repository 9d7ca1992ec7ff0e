"""Contract checks for policies and estimators, as a product: run them over your own."""

from steersman.testing.estimators import check_estimator
from steersman.testing.policies import check_policy

__all__ = ["check_estimator", "check_policy"]
