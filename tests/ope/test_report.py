"""What evaluate takes and gives."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.ope import LoggedData, Rounds, evaluate


@pytest.fixture(name="data")
def _data():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, 500)
    return LoggedData(actions, rng.random(500), np.full(500, 0.5), np.tile([0.3, 0.7], (500, 1)))


def test_only_what_was_asked_for(data):
    report = evaluate(data, estimators=("dr",))
    assert list(report.estimates) == ["dr"]
    with pytest.raises(InputError, match="available: dr"):
        report["ips"]


def test_an_estimator_of_ones_own(data):
    @dataclass(frozen=True)
    class Clipped:
        name: str = "clipped"

        def rounds(self, log):
            terms = np.minimum(log.data.weights, 1.2) * log.data.rewards
            return Rounds(terms, np.ones(len(terms)), span=1.2)

    report = evaluate(data, estimators=("ips", Clipped()), interval="bootstrap", resamples=200)
    assert report["clipped"].value < report["ips"].value
    assert report["clipped"].low < report["clipped"].value < report["clipped"].high


@dataclass(frozen=True)
class _Own:
    terms: object
    name: str = "own"

    def rounds(self, log):
        return self.terms(len(log.data))


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (np.ones, "'own' returned ndarray; allowed: Rounds"),
        (lambda n: Rounds(np.ones(n - 1), np.ones(n), 1.0), r"numerator of shape \(499,\)"),
        (lambda n: Rounds(np.ones(n), 1.0, 1.0), r"denominator of shape \(\)"),
        (lambda n: Rounds(np.full(n, np.nan), np.ones(n), 1.0), "numerator of nan in round 0"),
        (lambda n: Rounds([1.0] * n, np.ones(n), 1.0), "numerator that is list; allowed: an ar"),
        (lambda n: Rounds(np.ones(n), np.ones(n), "1"), "a span of '1'"),
        (lambda n: Rounds(np.ones(n), np.zeros(n), 1.0), "denominators that sum to 0.0"),
        (lambda n: Rounds(np.ones(n), np.ones(n), float("nan")), "a span of nan"),
    ],
)
@pytest.mark.parametrize("interval", ["wald", "bootstrap", "bernstein"])
def test_what_no_estimate_can_be_made_of_is_said(data, terms, said, interval):
    with pytest.raises(InputError, match=said):
        evaluate(data, estimators=(_Own(terms),), interval=interval, resamples=200)


def test_two_estimators_of_one_name_are_refused(data):
    first, second = _Own(lambda n: Rounds(np.ones(n), np.ones(n), 1.0)), _Own(None)
    with pytest.raises(InputError, match="duplicate estimator name 'own'"):
        evaluate(data, estimators=(first, second))
    assert list(evaluate(data, estimators=("ips", "ips", first, first)).estimates) == ["ips", "own"]


def test_as_dict_is_json(data):
    told = json.loads(json.dumps(evaluate(data).as_dict()))
    assert told["refused"] is False
    assert told["estimates"]["ips"]["value"] == pytest.approx(0.5, abs=0.1)
    assert told["diagnostics"]["n"] == 500


def test_as_dict_is_json_of_numpys_options_and_of_what_is_not_finite(data):
    report = evaluate(data, level=np.float32(0.9), adaptive=np.bool_(True))
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))["adaptive"] is True
    rare = data.propensities.copy()
    rare[0], target = 1e-140, data.target.copy()
    target[0] = np.eye(2)[1 - data.actions[0]]  # of no weight, and nobody knows how large it can be
    log = LoggedData(data.actions, data.rewards, rare, target)
    report = evaluate(log, estimators=("ips",), interval="bernstein")
    assert report["ips"].high == float("inf")
    told = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert told["estimates"]["ips"]["high"] is None


def test_an_interval_is_the_same_whatever_else_is_asked_for(data):
    options = {"interval": "bootstrap", "resamples": 200}
    together = evaluate(data, **options)
    for name, one in together.estimates.items():
        assert evaluate(data, estimators=(name,), **options)[name] == one


def test_one_seed_one_answer(data):
    first, second, third = (
        evaluate(data, interval="bootstrap", resamples=300, seed=seed) for seed in (1, 1, 2)
    )
    assert first.estimates == second.estimates
    assert first["ips"] != third["ips"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"estimators": ("ips", "magic")}, "magic"),
        ({"estimators": ()}, "estimators"),
        ({"interval": "exact"}, "interval"),
        ({"level": 1.0}, "level"),
        ({"interval": "bootstrap", "resamples": 5}, "resamples"),
        ({"interval": "bootstrap", "resamples": 1e3}, "resamples is 1000.0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": "0"}, "seed is '0'"),
        ({"seed": True}, "seed is True; allowed: a whole number of at least 0; pass"),
        ({"adaptive": "yes"}, "adaptive is 'yes'; allowed: True or False; pass"),
        ({"adaptive": None}, "adaptive is None"),
        ({"resamples": 0}, "resamples is 0; allowed: a whole number from 100 to 1,000,000"),
        ({"resamples": 1.5}, "resamples is 1.5"),
        ({"resamples": True}, "resamples is True"),
        ({"interval": "bootstrap", "resamples": 10**12}, "to 1,000,000; pass"),
        (
            {"interval": "bootstrap", "resamples": 100, "level": 0.99},
            "resamples is 100 at level 0.99; allowed: 200 or more",
        ),
        ({"estimators": (3,)}, "estimators"),
        ({"level": "x"}, "level is"),
        ({"level": "0.95"}, "level is"),
        ({"level": None}, "level is"),
        ({"level": 0}, "level is"),
        ({"level": float("nan")}, "level is"),
        ({"data": None}, "LoggedData"),
        ({"data": {"actions": [0]}}, "LoggedData"),
        ({"data": [1.0, 0.0]}, "LoggedData"),
    ],
)
def test_evaluate_with_bad_argument_names_the_value(data, options, said):
    with pytest.raises(InputError, match=said):
        evaluate(**({"data": data} | options))


def test_bernstein_asks_for_the_range_of_other_rewards(data):
    wide = LoggedData(data.actions, 5 * data.rewards, data.propensities, data.target)
    with pytest.raises(InputError, match="reward_range"):
        evaluate(wide, interval="bernstein")
    declared = LoggedData(
        data.actions, 5 * data.rewards, data.propensities, data.target, reward_range=(0.0, 5.0)
    )
    wide_ends = evaluate(declared, interval="bernstein")["ips"]
    ends = evaluate(data, interval="bernstein")["ips"]
    assert wide_ends.low == pytest.approx(5 * ends.low)
    assert wide_ends.high == pytest.approx(5 * ends.high)


def test_rewards_of_1e100_do_not_overflow(data):
    huge = LoggedData(data.actions, 1e100 * data.rewards, data.propensities, data.target)
    for interval in ("wald", "bootstrap"):
        for adaptive in (False, True):
            options = {"interval": interval, "adaptive": adaptive, "resamples": 200}
            ours, plain = evaluate(huge, **options), evaluate(data, **options)
            for name in ("ips", "snips", "dr"):
                assert ours[name].low == pytest.approx(1e100 * plain[name].low)
                assert ours[name].high == pytest.approx(1e100 * plain[name].high)


def test_a_level_needs_resamples_beyond_its_ends(data):
    found = evaluate(data, interval="bootstrap", resamples=200, level=0.99)
    assert found["ips"].low < found["ips"].value < found["ips"].high
    evaluate(data, resamples=100, level=0.999999)  # no bootstrap, no resamples
