"""Every estimator keeps its contract, and the contract catches those that do not."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from steersman.ope import ESTIMATORS, IPS, Rounds
from steersman.testing import check_estimator


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@pytest.mark.parametrize("seed", [0, 1])
def test_ours_keep_it(name, seed):
    check_estimator(ESTIMATORS[name], seed=seed)


@dataclass(frozen=True)
class Broken:
    """IPS with one fault."""

    fault: str
    name: str = "broken"

    def rounds(self, log):
        data = log.data
        right = IPS().rounds(log)
        if self.fault == "shifts":
            return replace(right, numerator=right.numerator + 0.01)
        if self.fault == "ignores weights":
            return replace(right, numerator=data.rewards)
        if self.fault == "depends on order":
            return replace(right, numerator=right.numerator * np.linspace(0.9, 1.1, len(data)))
        if self.fault == "draws numbers":
            noise = np.random.default_rng().normal(scale=1e-7, size=len(data))
            return replace(right, numerator=right.numerator + noise)
        if self.fault == "writes into the log":
            data.rewards[0] += 1e-12
            return right
        return Rounds(right.numerator**2, right.denominator, right.span)


@pytest.mark.parametrize(
    "fault",
    [
        "shifts",
        "ignores weights",
        "depends on order",
        "draws numbers",
        "writes into the log",
        "squares",
    ],
)
def test_faults_are_caught(fault):
    with pytest.raises(AssertionError):
        check_estimator(Broken(fault))
