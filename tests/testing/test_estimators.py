"""Every estimator keeps its contract, and the contract catches those that do not."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.ope import ESTIMATORS, IPS, LoggedData, evaluate
from steersman.policies import LinUCB
from steersman.testing import check_estimator, check_policy


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@pytest.mark.parametrize("seed", [0, 1])
def test_ours_keep_it(name, seed):
    check_estimator(ESTIMATORS[name], seed=seed)


def writes_into_the_log(terms, data):
    data.rewards[0] += 1e-12
    return terms


def draws_numbers(terms, data):
    return terms + np.random.default_rng().normal(scale=1e-7, size=len(data))


FAULTS = {
    "shifts": lambda terms, _: terms + 0.01,
    "ignores weights": lambda _, data: data.rewards,
    "depends on order": lambda terms, data: terms * np.linspace(0.9, 1.1, len(data)),
    "draws numbers": draws_numbers,
    "writes into the log": writes_into_the_log,
    "squares": lambda terms, _: terms**2,
    "says it is surer than it is": lambda terms, _: terms.mean() + 0.7 * (terms - terms.mean()),
    "says it is certain": lambda terms, _: np.full(len(terms), terms.mean()),
    "says it is less sure than it is": lambda terms, _: terms + np.resize([1.0, -1.0], len(terms)),
    "is off where weights differ": lambda terms, data: (
        terms * (1.05 if np.ptp(data.weights) else 1)
    ),
    "weighs by the mean propensity": lambda _, data: (
        data.chosen_target
        / np.bincount(data.actions, data.propensities)[data.actions]
        * np.bincount(data.actions)[data.actions]
        * data.rewards
    ),
    "rounds rewards": lambda _, data: data.weights * data.rewards.round(),
    "clips weights": lambda _, data: np.minimum(data.weights, 2.0) * data.rewards,
    "clips what is above 2.6": lambda _, data: np.minimum(data.weights, 2.6) * data.rewards,
    "takes rewards below 0 for 0": lambda _, data: data.weights * np.maximum(data.rewards, 0.0),
    "knows three actions": lambda terms, data: np.where(data.actions < 3, terms, 0.0),
    "returns a prediction": lambda terms, data: terms if data.q_hat is None else data.q_hat[:, 0],
    "trusts predictions": lambda terms, data: (
        terms if data.q_hat is None else (data.q_hat * data.target).sum(axis=1)
    ),
}


@dataclass(frozen=True)
class Broken:
    """IPS with one fault in its terms."""

    fault: str
    name: str = "broken"

    def rounds(self, log):
        right = IPS().rounds(log)
        return replace(right, numerator=FAULTS[self.fault](right.numerator, log.data))


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught(fault):
    with pytest.raises(AssertionError):
        check_estimator(Broken(fault))


@dataclass(frozen=True)
class Narrow:
    """IPS whose span is a part of what it is."""

    part: float
    name: str = "narrow"

    def rounds(self, log):
        right = IPS().rounds(log)
        return replace(right, span=self.part * right.span)


@pytest.mark.parametrize("part", [0.0, 0.4])
def test_a_span_that_terms_leave_is_told(part):
    with pytest.raises(AssertionError, match=r"span is .* pass the largest possible width"):
        check_estimator(Narrow(part))


@pytest.mark.parametrize(
    "value", ["ips", IPS, None, object()], ids=["name", "class", "none", "object"]
)
def test_what_is_no_estimator_is_refused(value):
    with pytest.raises(InputError, match=r"check_estimator got .*; allowed: an object .*; pass"):
        check_estimator(value)
    if value != "ips":
        with pytest.raises(InputError, match="objects with a name and rounds"):
            evaluate(LoggedData([0], [1.0], [1.0], [[1.0]]), estimators=[value])


def test_what_is_no_policy_is_refused():
    for value, said in ((LinUCB, "the class LinUCB, which needs arguments"), ("a", "got str")):
        with pytest.raises(InputError, match=rf"{said}.*; allowed: a policy, .*; pass"):
            check_policy(value)
    with pytest.raises(InputError, match="got the class LinUCB; allowed"):
        check_policy(lambda: LinUCB)

    def broken():
        return len(3)

    with pytest.raises(TypeError, match="has no len"):  # the caller's own mistake, as it is
        check_policy(broken)
