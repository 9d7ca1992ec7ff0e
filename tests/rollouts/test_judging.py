"""Every check by itself: what it takes to go on, what holds, sends back, or is not enough."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.rollouts.arm_comparison import MetricEvidence, compare, missing_differs, steadied
from steersman.rollouts.error_budget import Counts, stretches
from steersman.rollouts.evidence import Evidence, OffPolicyEvidence, ShadowEvidence, SourceEvidence
from steersman.rollouts.plan import PlannedGuardrail, PlannedStage, RolloutPlan
from steersman.rollouts.verdicts import judge, rejudge
from steersman.stats import Moments, two_arm_confidence_sequence

DAY = 86_400.0
PLAN = RolloutPlan(
    "s",
    (
        PlannedStage("shadow", 0.0, 100, DAY),
        PlannedStage("canary", 0.05, 200, DAY),
        PlannedStage("ab", 0.25, 200, DAY),
        PlannedStage("ab", 0.5, 200, DAY),
        PlannedStage("live", 0.95, 0, DAY),
    ),
    (
        PlannedGuardrail("reward", "reward", better="higher", alpha=0.025),
        PlannedGuardrail("errors", "errors", margin=0.01, alpha=0.0125),
        PlannedGuardrail("cost", "mean", "cost_usd", worse="hold", alpha=0.0125),
    ),
)
SHADOW, CANARY, AB, LAST, LIVE = range(5)
NOW = 10 * DAY
STORE = SourceEvidence("store", candidate=tuple(Counts(s, 0, 100) for s in stretches(PLAN.budget)))


def metric(candidate, control, n=2000, sd=0.25):
    return MetricEvidence(Moments(n, candidate, sd * sd), Moments(n, control, sd * sd))


# A candidate that is clearly better, seen on 2,000 units of each arm.
GOOD = Evidence(
    step_started_at=NOW - DAY,
    last_decision_at=NOW - 5.0,
    arrived=(2010, 2005),
    closed=(2000, 2000),
    step_closed=(500, 500),
    metrics={
        "reward": metric(0.56, 0.5),
        "errors": metric(0.0, 0.0, sd=0.0),
        "cost": metric(0.1, 0.1, sd=0.05),
    },
    sources=(STORE,),
)
SEEN = replace(
    GOOD,
    arrived=(0, 0),
    closed=(0, 0),
    step_closed=(0, 0),
    metrics={},
    shadow=ShadowEvidence(500, 0, 3),
    off_policy=OffPolicyEvidence(0.55, 0.5, 0.6, 0.5, 900.0, 0.01),
)


def judged(step=LAST, evidence=GOOD, now=NOW, plan=PLAN):
    """Judge, and try that the verdict can be reached again from what would be stored."""
    found = judge(plan, step, evidence, now)
    again = rejudge(json.loads(json.dumps(found.inputs)))
    assert again == found
    return found


def with_metric(name, evidence=GOOD, **arms):
    return replace(evidence, metrics={**evidence.metrics, name: metric(**arms)})


@pytest.mark.parametrize("step", [CANARY, AB, LAST, LIVE])
def test_a_good_candidate_goes_on(step):
    found = judged(step)
    assert (found.verdict, found.incident) == ("promote", None)
    assert "no guardrail is broken" in found.reasons[0]


def test_a_candidate_that_the_log_and_the_shadow_speak_for_goes_on():
    assert judged(SHADOW, SEEN).verdict == "promote"


@pytest.mark.parametrize(
    ("step", "changes", "verdict", "said"),
    [
        (
            LAST,
            {"step_started_at": NOW - DAY + 1},
            "not_enough_data",
            "86399 of at least 86400 s at ab",
        ),
        (
            LAST,
            {"step_closed": (199, 500)},
            "not_enough_data",
            "199 of at least 200 closed units of candidate",
        ),
        (
            LAST,
            {"step_closed": (500, 0)},
            "not_enough_data",
            "0 of at least 200 closed units of control",
        ),
        (LAST, {"step_started_at": NOW + 60}, "hold", "60 s in the future"),
        (LAST, {"last_decision_at": NOW - 3601}, "hold", "no decision for 3601 s"),
        (LAST, {"last_decision_at": None}, "hold", "no decision for 86400 s"),
        (LAST, {"sources": ()}, "hold", "no metrics source was queried"),
        (
            LAST,
            {"sources": (STORE, SourceEvidence("prometheus", alive=False, reason="refused"))},
            "hold",
            "prometheus has failed: refused",
        ),
        (LAST, {"sources": (replace(STORE, behind="counting"),)}, "hold", "lags: counting"),
        (LAST, {"doubts": ("the clock jumped",)}, "hold", "the clock jumped"),
        (LAST, {"arrived": (2000, 2500)}, "hold", "uneven split"),
        (
            LAST,
            {"metrics": {}},
            "hold",
            "reward has no values; check that the application reports it",
        ),
        (
            LAST,
            {"metrics": {}, "closed": (60, 60)},
            "not_enough_data",
            "reward has values for 0 units of one arm; at least 50 needed",
        ),
        (SHADOW, {"shadow": None}, "not_enough_data", "0 of at least 100 decisions in shadow"),
        (SHADOW, {"shadow": ShadowEvidence(500, 6, 0)}, "hold", "failed in 6 of 500"),
        (SHADOW, {"shadow": ShadowEvidence(500, 0, 51)}, "hold", "slow in 51 of 500"),
        (SHADOW, {"off_policy": None}, "not_enough_data", "off-policy evaluation is still running"),
        (
            SHADOW,
            {"off_policy": OffPolicyEvidence(reasons=("no overlap",))},
            "hold",
            "off-policy: no overlap",
        ),
        (SHADOW, {"off_policy": OffPolicyEvidence()}, "hold", "no estimate for the candidate"),
        (
            SHADOW,
            {"off_policy": OffPolicyEvidence(0.5, 0.4, 0.6, 0.5, 99.0, 0.01)},
            "hold",
            "effective sample size 99; at least 100 needed",
        ),
        (
            SHADOW,
            {"off_policy": OffPolicyEvidence(0.5, 0.4, 0.6, 0.5, 900.0, 0.06)},
            "hold",
            "6.0% of the sum",
        ),
        (
            SHADOW,
            {"off_policy": OffPolicyEvidence(0.4, 0.3, 0.45, 0.5, 900.0, 0.01)},
            "hold",
            "mean reward 0.4500, below the logged mean reward 0.5000",
        ),
    ],
)
def test_what_is_not_known_or_not_good_never_promotes(step, changes, verdict, said):
    evidence = replace(SEEN if step == SHADOW else GOOD, **changes)
    found = judged(step, evidence)
    assert found.verdict == verdict
    assert any(said in reason for reason in found.reasons), found.reasons


def test_harm_to_the_reward_is_rolled_back_at_any_stage_after_the_shadow():
    for step in (CANARY, AB, LAST, LIVE):
        found = judged(step, with_metric("reward", candidate=0.44, control=0.5))
        assert (found.verdict, found.incident) == ("roll_back", "guardrail")
        assert found.reasons[0].startswith("reward is worse by at least 0.0")


def test_harm_rolls_back_even_before_the_time_is_up_and_with_dead_sources():
    evidence = replace(
        with_metric("reward", candidate=0.44, control=0.5),
        step_started_at=NOW,
        sources=(),
        arrived=(2000, 3000),
    )
    assert judged(CANARY, evidence).verdict == "roll_back"


def test_a_guardrail_that_may_only_hold_holds():
    found = judged(evidence=with_metric("cost", candidate=0.2, control=0.1, sd=0.05))
    assert (found.verdict, found.incident) == ("hold", "guardrail")


def test_less_is_better_for_errors():
    worse = with_metric("errors", candidate=0.05, control=0.01, sd=0.1)
    better = with_metric("errors", candidate=0.01, control=0.05, sd=0.1)
    assert judged(evidence=worse).verdict == "roll_back"
    assert judged(evidence=better).verdict == "promote"


def test_a_price_that_is_tolerated_breaks_nothing():
    errors = replace(PLAN.guardrails[1], margin=0.06, tolerate=0.05)
    plan = replace(PLAN, guardrails=(PLAN.guardrails[0], errors, PLAN.guardrails[2]))
    evidence = with_metric("errors", candidate=0.04, control=0.01, sd=0.1)
    assert judged(evidence=evidence).verdict == "roll_back"
    assert judged(evidence=evidence, plan=plan).verdict == "promote"
    much = with_metric("errors", candidate=0.14, control=0.01, sd=0.1)
    assert judged(evidence=much, plan=plan).verdict == "roll_back"


def test_before_live_the_objective_must_be_shown_and_margins_kept():
    equal = with_metric("reward", candidate=0.51, control=0.5)
    assert judged(AB, equal).verdict == "promote"
    found = judged(LAST, equal)
    assert found.verdict == "not_enough_data"
    assert "cannot yet show that reward is better" in found.reasons[0]
    loose = with_metric("errors", candidate=0.02, control=0.02, sd=0.14)
    found = judged(LAST, loose)
    assert found.verdict == "not_enough_data"
    assert "cannot yet rule out that errors is worse by 0.012" in found.reasons[0]
    # What may only hold needs no margin to be shown.
    assert judged(LAST, with_metric("cost", candidate=0.5, control=0.5, sd=0.5)).verdict == (
        "promote"
    )


def test_a_candidate_that_need_not_be_better():
    plan = replace(PLAN, objective="non_inferior", objective_margin=0.03)
    equal = with_metric("reward", candidate=0.5, control=0.5)
    assert judged(LAST, equal, plan=plan).verdict == "promote"
    found = judged(LAST, with_metric("reward", candidate=0.485, control=0.5), plan=plan)
    assert "cannot yet show that reward is less than 0.03 worse" in found.reasons[0]


def test_a_canary_shows_little_and_that_little_is_asked_of_it():
    few = {"n": 60, "candidate": 0.47, "control": 0.5}
    found = judged(CANARY, with_metric("reward", **few))
    assert found.verdict == "not_enough_data"
    assert any(
        "canary: cannot yet rule out that reward is worse by 0.1" in reason
        for reason in found.reasons
    )
    assert judged(AB, with_metric("reward", **few)).verdict == "promote"


def test_units_that_get_lost_stop_the_rollout():
    found = judged(evidence=replace(GOOD, arrived=(4000, 4500)))
    assert (found.verdict, found.incident) == ("hold", "sample_ratio")
    assert judged(evidence=replace(GOOD, arrived=(4000, 4100))).verdict == "promote"


def test_numbers_that_are_missing_in_one_arm_stop_the_rollout():
    lacking = MetricEvidence(Moments(1700, 0.56, 0.06), Moments(2000, 0.5, 0.06))
    found = judged(evidence=replace(GOOD, metrics={**GOOD.metrics, "reward": lacking}))
    assert (found.verdict, found.incident) == ("hold", "missing_values")
    assert "reward is missing for 15.0% of the candidate's units and 0.0%" in found.reasons[0]
    both = MetricEvidence(Moments(1700, 0.56, 0.06), Moments(1690, 0.5, 0.06))
    assert judged(evidence=replace(GOOD, metrics={**GOOD.metrics, "reward": both})).verdict == (
        "promote"
    )
    assert not missing_differs(PLAN, lacking, (40, 40))


def burnt(candidate, control=()):
    lengths = stretches(PLAN.budget)
    both = [tuple(Counts(s, 1000 * r, 1000) for s in lengths) for r in (candidate, control) if r]
    return SourceEvidence("store", True, "", *both)


def test_the_error_budget():
    found = judged(evidence=replace(GOOD, sources=(burnt(0.2),)))
    assert (found.verdict, found.incident) == ("roll_back", "error_budget")
    # Both arms suffer: it is not the candidate's doing.
    found = judged(evidence=replace(GOOD, sources=(burnt(0.2, 0.2),)))
    assert (found.verdict, found.incident) == ("hold", None)
    assert judged(evidence=replace(GOOD, sources=(burnt(0.2, 0.001),))).verdict == "roll_back"
    found = judged(evidence=replace(GOOD, sources=(burnt(0.02),)))
    assert (found.verdict, found.incident) == ("hold", None)
    assert judged(evidence=replace(GOOD, sources=(burnt(0.005),))).verdict == "promote"


def test_no_errors_in_few_units_do_not_prove_that_there_are_none():
    for n, enough in ((60, False), (200, False), (1500, True)):
        low = compare(PLAN, {"errors": metric(0.0, 0.0, n, 0.0)})[1].gain_low
        assert (low > -0.01) is enough, n


def test_numbers_that_never_vary_give_no_certain_answer():
    evidence = with_metric("reward", candidate=0.5, control=0.5, n=100, sd=0.0)
    assert judged(evidence=evidence).verdict == "not_enough_data"
    # Constant and different: believed once there are enough of them.
    assert judged(evidence=with_metric("reward", candidate=0.4, control=0.5, sd=0.0)).verdict == (
        "roll_back"
    )


@given(st.integers(0, 400), st.integers(0, 400))
def test_the_variance_of_zeros_and_ones_is_that_with_one_more_of_each(ones, zeros):
    n = ones + zeros
    mean = ones / n if n else 0.0
    spread = n * mean * (1 - mean) / (n - 1) if n > 1 else 0.0
    share = (ones + 1) / (n + 2)
    assert steadied(Moments(n, mean, spread)).variance == pytest.approx(
        max(share * (1 - share), spread), abs=1e-12
    )


def test_bounds_are_those_of_the_two_arm_sequence():
    seen = compare(PLAN, GOOD.metrics)
    arms = [steadied(moments) for moments in GOOD.metrics["reward"]]
    for level, star, low in (
        (0.975, 600, seen[0].low),
        (0.95, 4000, seen[0].gain_low),
        (0.95, 600, seen[0].canary_low),
    ):
        bounds = two_arm_confidence_sequence(*arms, level=level, n_star=star, one_sided=True)
        assert low == pytest.approx(bounds.low, abs=1e-12)
    # Where less is better, how much better is the difference with its sign turned.
    cost = seen[2]
    assert cost.harm_high == -cost.low
    assert -cost.high < cost.gain_low < 0.0


numbers = st.builds(Moments, st.integers(0, 3000), st.floats(0, 1), st.floats(0, 0.25))


@pytest.mark.slow
@given(
    st.integers(1, 4),
    st.fixed_dictionaries(
        {
            "arrived": st.tuples(st.integers(0, 4000), st.integers(0, 4000)),
            "step_closed": st.tuples(st.integers(0, 4000), st.integers(0, 4000)),
            "step_started_at": st.floats(NOW - 3 * DAY, NOW + DAY),
            "last_decision_at": st.none() | st.floats(NOW - 7200, NOW),
            "sources": st.sampled_from([(), (STORE,), (SourceEvidence("p", alive=False),)]),
        }
    ),
    st.dictionaries(
        st.sampled_from(["reward", "errors", "cost"]), st.builds(MetricEvidence, numbers, numbers)
    ),
)
def test_whatever_was_counted_a_promotion_has_all_that_it_takes(step, changes, metrics):
    sizes = [[metric[arm].n for metric in metrics.values()] for arm in (0, 1)]
    closed = tuple(max(arm, default=0) for arm in sizes)
    found = judged(step, replace(GOOD, **changes, metrics=metrics, closed=closed))
    if found.verdict != "promote":
        assert found.reasons
        return
    assert set(metrics) == {"reward", "errors", "cost"}
    assert min(min(arm) for arm in sizes) >= PLAN.first_look_units
    assert min(changes["step_closed"]) >= PLAN.stages[step].min_units
    assert changes["step_started_at"] <= NOW - DAY
    assert changes["last_decision_at"] >= NOW - PLAN.stale_s
    assert changes["sources"] == (STORE,)
    for seen in found.compared:
        assert seen.harm_high >= 0.0
    if step == LAST:
        assert found.compared[0].gain_low > 0.0
        assert found.compared[1].gain_low > -0.01


def test_a_rollout_that_only_shadows_promotes_nothing():
    found = judged(SHADOW, SEEN, plan=replace(PLAN, stages=PLAN.stages[:1]))
    assert found.verdict == "hold"
    assert any("ends in shadow" in reason for reason in found.reasons)


def test_a_candidate_below_the_declared_value_is_held():
    found = judged(SHADOW, SEEN, plan=replace(PLAN, min_value=0.51))
    assert "mean reward 0.5000; at least 0.51 needed" in found.reasons[0]


def test_what_cannot_be_judged_is_refused():
    for step in (-1, 5):
        with pytest.raises(InputError, match="invalid step"):
            judge(PLAN, step, GOOD, NOW)
    inputs = judged().inputs
    for broken in ({}, {**inputs, "evidence": {}}, {**inputs, "step": "x"}):
        with pytest.raises(InputError, match="invalid inputs of a verdict"):
            rejudge(broken)
    bad = json.loads(json.dumps(inputs))
    bad["evidence"]["metrics"]["reward"]["candidate"]["variance"] = -1.0
    with pytest.raises(InputError, match="variance"):
        rejudge(bad)
    with pytest.raises(InputError, match="drop NaN"):
        metric(math.nan, 0.5)
