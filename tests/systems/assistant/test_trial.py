"""The trial: what is compared is comparable, and its numbers are what they say."""

import json

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.assistant.evidence import evidence_log, route_evidence
from steersman_systems.assistant.report import compile_report, explain
from steersman_systems.assistant.routes import Deep
from steersman_systems.assistant.summary import paired_difference, summarise
from steersman_systems.assistant.trial import FIXED, Job, Plan, replay_set, run_trials, stream_of


@pytest.fixture(scope="module")
def trial():
    return run_trials([Plan(orders=2, scouts=1)], processes=1)[0]


@pytest.mark.nightly
@pytest.mark.slow
def test_learning_beats_the_best_fixed_choice_and_the_rules(trial):
    reward = {name: trial.figures(name)["reward"] for name in ("learned", "rules", "oracle")}
    fixed = trial.figures(trial.best_fixed)["reward"]
    assert trial.best_fixed in FIXED
    assert max(reward["rules"], fixed) < reward["learned"] < reward["oracle"]
    gain = trial.gain("learned", trial.best_fixed)
    assert 0.0 < gain["low"] < gain["value"] < gain["high"]


@pytest.mark.nightly
@pytest.mark.slow
def test_the_report_has_every_named_figure(trial, world):
    stream = stream_of(0)
    job = Job(0, ("learned",), Deep())
    log = evidence_log(world, stream, job)
    evidence = route_evidence(log)
    report = json.loads(json.dumps(compile_report(trial, [], evidence, [])))
    for name in ("learned", "rules", "best_fixed", "oracle"):
        figures = report["policies"][name]
        for figure in ("success", "tool_precision", "routing_precision", "reward"):
            assert 0.0 <= figures[figure] <= 1.0
        assert figures["p50_latency_ms"] <= figures["p95_latency_ms"]
        assert figures["cost_usd"] >= 0.0
        assert 0.0 <= report["first_seen"][name] <= 1.0
    assert report["requests"] == len(stream)
    assert set(report["cache"]) == {"hit_rate", "wrong_hit_rate"}
    assert len(report["ope"]) == 3
    for row in report["ope"]:
        assert row["low"] <= row["truth"] <= row["high"], "99 % intervals, one seeded log"
    explained = explain(log.at(699))
    assert explained[0]["point"] == "cache"
    for row in explained:
        chosen = [a for a in row["actions"] if a["chosen"]]
        assert chosen[0]["probability"] == row["propensity"]


@pytest.mark.slow
def test_the_same_order_gives_the_same_log(world):
    stream = stream_of(3)
    job = Job(3, ("rules",), Deep())
    first, second = (replay_set(world, stream, "rules", job) for _ in range(2))
    assert np.array_equal(first.rewards, second.rewards)
    assert summarise(first) == summarise(second)


def test_unknown_sets_and_empty_plans_are_refused(world):
    stream = stream_of(0)
    with pytest.raises(InputError, match=r"unknown policy set .*; allowed: "):
        replay_set(world, stream, "greedy", Job(0, (), Deep()))
    with pytest.raises(InputError, match="scouts <= orders"):
        Plan(orders=1, scouts=2)


def test_the_paired_interval_is_that_of_a_plain_mean_where_orders_agree():
    rng = np.random.default_rng(0)
    requests = [np.arange(400)] * 10
    gains = [rng.normal(0.1, 1.0, 400)] * 10
    value, low, high = paired_difference(requests, gains, np.random.default_rng(1))
    half = 1.96 * gains[0].std() / 20.0
    assert value == pytest.approx(gains[0].mean())
    assert (low, high) == pytest.approx((value - half, value + half), abs=0.15 * half)


@pytest.mark.slow
def test_requests_that_have_a_tool_in_common_are_drawn_together():
    """Taken one by one, as independent, the interval covers no gain in about half of the draws."""
    covered = dict.fromkeys(("together", "apart"), 0)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        tools = np.repeat(np.arange(60), 5)
        gains = [rng.normal(0, 1, 60)[tools] + rng.normal(0, 1, 300)] * 2
        groups = {"together": [7 * tools] * 2, "apart": [np.arange(300)] * 2}
        for how, of in groups.items():
            _, low, high = paired_difference(of, gains, np.random.default_rng(seed), resamples=400)
            covered[how] += low <= 0.0 <= high
    assert covered["together"] >= 89
    assert covered["apart"] <= 80


@pytest.mark.slow
def test_the_paired_interval_covers_no_gain_at_all():
    """Crossed effects of requests and orders: the interval must not be too short."""
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        row, order = rng.normal(0, 1, 150), rng.normal(0, 0.2, 10)
        gains = [row + order[i] + rng.normal(0, 1, 150) for i in range(10)]
        _, low, high = paired_difference([np.arange(150)] * 10, gains, rng, resamples=400)
        covered += low <= 0.0 <= high
    assert covered >= 89
