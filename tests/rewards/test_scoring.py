"""The value is the declared, scaled sum of its terms: within 0 to 1, and in the right direction."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.rewards import Outcome, evaluate
from steersman.spec.reward import Reward

ALICE = {
    "success": {"weight": 2.0},
    "tool_ok": {"weight": 1.0},
    "latency_ms": {"weight": -2.0, "high": 2000},
    "cost_usd": {"weight": -0.05, "high": 0.1},
    "cache_hit": {"weight": 0.4, "missing": 0.0},
    "guardian_flag": {"weight": -0.7, "missing": 0.0},
}


def reward(terms, **more):
    return Reward.model_validate({"terms": terms, **more})


def exactly(terms, outcomes):
    """A second implementation, in exact fractions."""
    total = Fraction(0)
    for name, term in terms.items():
        low, high = (Fraction(term.get(end, default)) for end, default in (("low", 0), ("high", 1)))
        z = min(Fraction(1), max(Fraction(0), (Fraction(outcomes[name]) - low) / (high - low)))
        total += Fraction(term["weight"]) * z - min(Fraction(term["weight"]), Fraction(0))
    return float(total / sum(abs(Fraction(term["weight"])) for term in terms.values()))


def test_a_hand_worked_reward():
    found = evaluate(
        reward(ALICE), {"success": 1, "tool_ok": 1, "latency_ms": 500, "cost_usd": 0.02}
    )
    # 2 + 1 - 2·.25 - .05·.2 = 2.49, of at least -2.75 and at most 3.4
    assert found.value == pytest.approx((2.49 + 2.75) / (3.4 + 2.75))
    assert found.scaled["latency_ms"] == 0.25
    assert found.terms["latency_ms"] == 500
    assert found.terms["cache_hit"] == 0.0
    assert (found.status, found.final, found.absent) == ("scored", True, ())


def test_the_ratios_of_the_unbounded_reward_are_kept_within_the_ranges():
    def original(success, latency_ms, cost_usd, flag):
        return 2.0 * success - 0.001 * latency_ms - 0.5 * cost_usd - 0.7 * flag

    cases = [(1, 200, 0.01, 0), (0, 100, 0.0, 0), (1, 1900, 0.09, 1), (0, 1500, 0.05, 1)]
    ours = [
        evaluate(
            reward(ALICE),
            dict(
                zip(("success", "latency_ms", "cost_usd", "guardian_flag"), case, strict=True),
                tool_ok=0,
            ),
        ).value
        for case in cases
    ]
    slopes = np.diff(ours) / np.diff([original(*case) for case in cases])
    np.testing.assert_allclose(slopes, 1 / 6.15, rtol=1e-9)


def test_best_and_worst_are_one_and_zero():
    best = {name: 1e9 if term["weight"] > 0 else -1e9 for name, term in ALICE.items()}
    worst = {name: -value for name, value in best.items()}
    assert evaluate(reward(ALICE), best).value == 1.0
    assert evaluate(reward(ALICE), worst).value == 0.0


NAMES = ("a", "b", "c")
TERM = st.fixed_dictionaries(
    {
        "weight": st.floats(-1e6, 1e6).filter(lambda weight: abs(weight) >= 1e-6),
        "low": st.floats(-1e300, 1e300),
        "span": st.floats(1e-300, 1e300),
    }
).filter(lambda term: term["low"] + term["span"] > term["low"])
TERMS = st.dictionaries(st.sampled_from(NAMES), TERM, min_size=1).map(
    lambda terms: {
        name: {"weight": t["weight"], "low": t["low"], "high": t["low"] + t["span"]}
        for name, t in terms.items()
    }
)
RAW = st.floats(allow_nan=False, allow_infinity=False)
OUTCOMES = st.fixed_dictionaries(dict.fromkeys(NAMES, RAW))


@pytest.mark.slow
@given(terms=TERMS, outcomes=OUTCOMES)
def test_value_is_within_bounds_and_equals_exact_arithmetic(terms, outcomes):
    found = evaluate(reward(terms), outcomes)
    assert 0.0 <= found.value <= 1.0
    assert found.value == pytest.approx(exactly(terms, outcomes), abs=1e-9)
    assert all(0.0 <= z <= 1.0 for z in found.scaled.values())


@pytest.mark.slow
@given(terms=TERMS, outcomes=OUTCOMES, higher=RAW, name=st.sampled_from(NAMES))
def test_value_follows_each_term_in_the_sign_of_its_weight(terms, outcomes, higher, name):
    if name not in terms:
        return
    low, high = sorted((outcomes[name], higher))
    before = evaluate(reward(terms), {**outcomes, name: low}).value
    after = evaluate(reward(terms), {**outcomes, name: high}).value
    assert (after - before) * math.copysign(1.0, terms[name]["weight"]) >= 0


@pytest.mark.parametrize("value", [True, np.True_, 1, 1.0, np.float32(1), np.int8(1), Fraction(1)])
def test_true_and_every_number_count(value):
    assert evaluate(reward({"success": {"weight": 1.0}}), {"success": value}).value == 1.0


SUCCESS = reward({"success": {"weight": 1.0}})
NOT_FINITE = r"outcome 'success' got .*finite number"


@pytest.mark.parametrize(
    ("spec", "outcomes", "message"),
    [
        (SUCCESS, {"success": math.nan}, NOT_FINITE),
        (SUCCESS, {"success": math.inf}, NOT_FINITE),
        (SUCCESS, {"success": -math.inf}, NOT_FINITE),
        (SUCCESS, {"success": 10**400}, NOT_FINITE),
        pytest.param(SUCCESS, {"success": 10**5000}, NOT_FINITE, id="huge"),
        (SUCCESS, {"success": "1"}, NOT_FINITE),
        (SUCCESS, {"success": None}, NOT_FINITE),
        (SUCCESS, {"success": [1]}, NOT_FINITE),
        (SUCCESS, {"success": Decimal(1)}, NOT_FINITE),
        (SUCCESS, {"success": 1j}, NOT_FINITE),
        (SUCCESS, {"success": np.float64("nan")}, NOT_FINITE),
        (reward(ALICE), None, r"outcomes got NoneType .*; allowed: a mapping .*; send {} if"),
        (reward(ALICE), 3, r"outcomes got int .*; allowed: a mapping .*; send {} if"),
        (reward(ALICE), "success", r"outcomes got str .*; allowed: a mapping .*; send {} if"),
        (reward(ALICE), b"success", r"outcomes got bytes .*; allowed: a mapping .*; send {} if"),
        (reward(ALICE), ["success"], r"outcomes got list .*; allowed: a mapping .*; send {} if"),
        (reward(ALICE), [("a", 1)], r"outcomes got list .*; allowed: a mapping .*; send {} if"),
        (reward(ALICE), {"success": 1, None: 1}, "outcome name got NoneType .*allowed: te"),
        (reward(ALICE), {"success": 1, 3: 1}, "outcome name got int .*allowed: te"),
        (reward(ALICE), {"success": 1, b"success": 1}, "outcome name got bytes .*allowed: te"),
        (reward(ALICE), {"success": 1, ("success",): 1}, "outcome name got tuple .*allowed: te"),
        (reward(ALICE), {"success": 1, "": 1}, "outcome name is"),
        (reward(ALICE), {"success": 1, " ": 1}, "outcome name is"),
        (reward(ALICE), {"success": 1, "\t": 1}, "outcome name is"),
        (None, {"success": 1}, "spec got NoneType .*; allowed: a declared reward; pass the reward"),
        (3, {"success": 1}, "spec got int .*; allowed: a declared reward; pass the reward"),
        ("success", {"success": 1}, "spec got str .*; allowed: a declared reward; pass the reward"),
        (
            b"success",
            {"success": 1},
            "spec got bytes .*; allowed: a declared reward; pass the reward",
        ),
        ([], {"success": 1}, "spec got list .*; allowed: a declared reward; pass the reward"),
        (
            {"terms": ALICE},
            {"success": 1},
            "spec got dict .*; allowed: a declared reward; pass the reward",
        ),
    ],
)
def test_evaluate_with_bad_spec_or_outcomes_names_the_value(spec, outcomes, message):
    with pytest.raises(InputError, match=message):
        evaluate(spec, outcomes)


def test_huge_values_count_as_the_end_of_their_range_and_stay_raw():
    found = evaluate(reward(ALICE), dict.fromkeys(ALICE, 1e300))
    assert found.scaled == dict.fromkeys(sorted(ALICE), 1.0)
    assert found.terms["latency_ms"] == 1e300


def test_outcomes_without_a_term_are_told_and_change_nothing():
    terms = {"success": {"weight": 1.0}}
    found = evaluate(reward(terms), {"success": 1, "stars": 5, "mood": -1})
    assert found.value == 1.0
    assert found.unscored == ("mood", "stars")
    with pytest.raises(InputError, match="outcome 'mood'"):
        evaluate(reward(terms), {"success": 1, "mood": math.nan})


def test_required_terms_that_did_not_come():
    came = {"success": 1, "cache_hit": 1}
    dropped = evaluate(reward(ALICE), came)
    assert (dropped.value, dropped.status) == (None, "dropped")
    assert dropped.absent == ("cost_usd", "latency_ms", "tool_ok")
    assert dropped.terms == {"success": 1.0, "cache_hit": 1.0}
    assumed = evaluate(reward(ALICE, missing={"value": 0.25}), came)
    assert (assumed.value, assumed.status) == (0.25, "assumed")
    assert assumed.terms == dropped.terms


def test_no_outcome_at_all_is_no_reward_even_if_every_term_could_be_assumed():
    spec = reward({"flag": {"weight": -1.0, "missing": 0.0}})
    assert evaluate(spec, {}).value is None
    assert evaluate(spec, {"other": 3}).value is None
    assert evaluate(spec, {"flag": 0}).value == 1.0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("", 1.0, "outcome name is .*; allowed: .* not blank; name"),
        (" ", 1.0, "outcome name is .*; allowed: .* not blank; name"),
        ("\t", 1.0, "outcome name is .*; allowed: .* not blank; name"),
        ("latency_ms", np.timedelta64(5, "ns"), "'latency_ms' got timedelta64"),
        ("latency_ms", np.timedelta64(5, "s"), "'latency_ms' got timedelta64"),
    ],
)
def test_outcome_with_bad_name_or_value_names_it(name, value, message):
    with pytest.raises(InputError, match=message):
        Outcome(name, value, at=0.0)
