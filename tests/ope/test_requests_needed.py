"""The forecast number of requests does give the wanted power."""

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.ope_worlds import IndependentWorld
from steersman.errors import InputError
from steersman.ope import IPS, LoggedData, evaluate, requests_needed

world = IndependentWorld()


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_simulated_power(estimator):
    pilot = world.log(np.random.default_rng(0), 4000)
    needed = requests_needed(pilot, 0.05, estimator=estimator)
    assert needed.rows == max(
        needed.by_power, needed.by_effective_sample_size, needed.by_weight_share
    )
    found = 0
    for run in range(200):
        data = world.log(np.random.default_rng([1, run]), needed.by_power)
        ends = evaluate(data, estimators=(estimator,))[estimator]
        found += not ends.low <= world.truth - 0.05 <= ends.high
    assert found / 200 == pytest.approx(0.8, abs=0.12)


def test_the_rules_of_refusal_are_forecast():
    pilot = world.log(np.random.default_rng(0), 400)
    needed = requests_needed(pilot, 1.0)
    assert needed.rows == max(needed.by_effective_sample_size, needed.by_weight_share)
    longer = world.log(np.random.default_rng(1), 2 * needed.rows)
    assert not evaluate(longer).refused


@pytest.mark.parametrize("target", [[0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])
@pytest.mark.parametrize("per_unit", [1, 4])
def test_a_log_of_the_size_that_was_forecast_is_refused_as_seldom_as_was_asked(target, per_unit):
    logged, means = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.8])

    def log(rng, rows):
        actions = rng.choice(3, size=rows, p=logged)
        rewards = (rng.random(rows) < means[actions]).astype(float)
        units = np.arange(rows) // per_unit if per_unit > 1 else None
        return LoggedData(actions, rewards, logged[actions], [target] * rows, clusters=units)

    pilots = [log(np.random.default_rng([0, run]), 8000) for run in range(9)]
    found = [requests_needed(pilot, 0.5).by_effective_sample_size for pilot in pilots]
    size = int(np.median(found)) // per_unit * per_unit
    logs = (log(np.random.default_rng([1, run]), size) for run in range(300))
    enough = np.mean([evaluate(one, estimators=[IPS()]).ess >= 100 for one in logs])
    assert enough == pytest.approx(0.8, abs=0.09)


def test_what_more_rows_cannot_mend():
    actions = np.zeros(400, dtype=int)
    target = np.where(np.arange(400)[:, None] % 2, [1.0, 0.0], [0.0, 1.0])
    pilot = LoggedData(actions, np.linspace(0, 1, 400), np.ones(400), target)
    assert requests_needed(pilot, 0.1).rows is None


def test_wrong_questions():
    pilot = world.log(np.random.default_rng(0), 400)
    for options, said in (
        ({"effect": 0.0}, "a finite number other than 0"),
        ({"effect": 1e-200}, "no number of rows"),
        ({"effect": 0.1, "power": 0.01}, "power"),
        ({"effect": 0.1, "estimator": "dm"}, "estimator"),
        ({"effect": "0.1"}, "effect is '0.1'"),
        ({"effect": None}, "effect is None"),
        ({"effect": 10**400}, "effect is 1000.*; allowed: a finite number"),
        ({"effect": 0.1, "power": True}, "power is True"),
        ({"effect": 0.1, "level": [0.9]}, "level is"),
        ({"effect": 0.1, "adaptive": "no"}, "adaptive is 'no'"),
    ):
        with pytest.raises(InputError, match=said):
            requests_needed(pilot, **options)
    nothing = LoggedData(
        np.zeros(5, dtype=int), np.ones(5), np.full(5, 0.5), np.tile([0.0, 1.0], (5, 1))
    )
    with pytest.raises(InputError, match="sum to 0"):
        requests_needed(nothing, 0.1)


def test_a_pilot_of_units_needs_more():
    pilot = world.log(np.random.default_rng(0), 400)
    columns = (pilot.actions, pilot.rewards, pilot.propensities, pilot.target)
    paired = LoggedData(*columns, clusters=np.arange(400) // 8)
    rows, units = requests_needed(pilot, 0.1), requests_needed(paired, 0.1)
    on_average = 100 * 400 / evaluate(paired).ess
    assert on_average < units.by_effective_sample_size < 2 * on_average
    assert units.by_effective_sample_size > rows.by_effective_sample_size
    with pytest.raises(InputError, match="or units"):
        requests_needed(LoggedData(*columns, clusters=np.zeros(400)), 0.1)


def test_numbers_of_other_kinds_and_widths_are_numbers():
    pilot = world.log(np.random.default_rng(0), 400)
    plain = requests_needed(pilot, 0.125, power=0.75)
    assert requests_needed(pilot, np.float32(0.125), power=Fraction(3, 4)) == plain
    assert requests_needed(pilot, np.longdouble(0.125), power=np.longdouble(0.75)) == plain
    assert requests_needed(pilot, np.int8(-128)) == requests_needed(pilot, -128.0)
    for wrong in (np.timedelta64(5, "ns"), 10**400, np.longdouble("1e400"), np.inf, "0.1", True):
        with pytest.raises(InputError, match=r"effect is .*; allowed: a finite number"):
            requests_needed(pilot, wrong)
