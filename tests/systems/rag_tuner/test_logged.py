"""A log is replayed as it was, and asked for nothing that it does not hold."""

from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.answerable import answerable
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.log_reader import read_log
from steersman_systems.rag_tuner.logged import load_world
from steersman_systems.rag_tuner.slices import Split, stratified
from steersman_systems.rag_tuner.strategies.factory import build_strategy
from steersman_systems.rag_tuner.verdict import judge, judged
from tests.systems.rag_tuner.logs import rows, some, written
from tests.systems.rag_tuner.worlds import tuned, world

RECORDED = world(queries=80)
CHOSEN = some(12)
HALVES = Split(np.arange(0, 80, 2), np.arange(1, 80, 2))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    file = written(tmp_path_factory.mktemp("log") / "log.jsonl", rows(RECORDED, CHOSEN))
    return read_log([file], "world")


def places(log, queries):
    """Of a log's questions in the recording."""
    return np.array([RECORDED.queries.index(log.queries[one]) for one in queries])


def test_what_was_evaluated_is_replayed_as_it_was(log):
    for one in CHOSEN:
        known = log.seen(one, np.arange(len(log)))
        assert 0.5 < len(known) / 80 < 0.9
        found, true = log.evaluate(one, known), RECORDED.evaluate(one, places(log, known))
        assert found.quality == pytest.approx(true.quality)
        assert found.latency_ms == pytest.approx(true.latency_ms)
        assert found.cost == pytest.approx(true.cost)
        assert (found.configuration, found.measures) == (one, ("recall", "ndcg"))


def test_what_was_not_evaluated_is_refused(log):
    one = CHOSEN[0]
    every = np.arange(len(log))
    with pytest.raises(InputError, match=r"on \d+ of these 80 questions"):
        log.evaluate(one, every)
    unknown = np.setdiff1d(every, log.seen(one, every))[:1]
    with pytest.raises(InputError, match="on 0 of these 1 questions"):
        log.evaluate(one, unknown)
    other = next(it for it in some(30) if it not in CHOSEN)
    assert not log.holds(other)
    assert not len(log.seen(other, every))
    with pytest.raises(InputError, match="on 0 of these 80"):
        log.evaluate(other, every)


def test_it_comes_back_from_its_file(log, tmp_path):
    log.save(tmp_path / "log.npz")
    found = load_world(tmp_path / "log.npz")
    assert found.sha256 == log.sha256
    assert (found.queries, found.configurations, found.about) == (
        log.queries, log.configurations, log.about
    )  # fmt: skip
    changed = replace(log, cost=log.cost + 1.0)
    assert changed.sha256 != log.sha256
    RECORDED.save(tmp_path / "all.npz")
    assert load_world(tmp_path / "all.npz").sha256 == RECORDED.sha256
    (tmp_path / "log.npz").write_bytes((tmp_path / "log.npz").read_bytes()[:500])
    with pytest.raises(DataError, match="no recorded evaluations"):
        load_world(tmp_path / "log.npz")
    with pytest.raises(InputError, match="columns of"):
        replace(log, cost=log.cost[1:])


def test_the_space_is_what_the_log_answers_for_and_the_share_is_told(log):
    policy = tuned()
    found = answerable(log, policy, HALVES, CHOSEN[0])
    space = found.tuned.space
    assert set(space.all) == set(CHOSEN)
    masses = policy.space.draw_probabilities
    mass = sum(masses[policy.space.index[one]] for one in CHOSEN)
    assert found.share == pytest.approx(mass)
    assert f"12 of 2,760 configurations, {mass:.1%} of" in str(found)
    # What is drawn is what an even draw gives, of these alone.
    assert space.draw_probabilities.sum() == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    drawn = [space.index[space.draw(rng)] for _ in range(2_000)]
    shares = np.bincount(drawn, minlength=12) / 2_000
    assert shares == pytest.approx(space.draw_probabilities, abs=0.05)
    for name in ("tpe", "ppo"):
        with pytest.raises(InputError, match="take factored, halving, random"):
            build_strategy(name, found.tuned, queries=80)
    everything = answerable(RECORDED, policy, HALVES, CHOSEN[0])
    assert (everything.tuned, everything.share) == (policy, 1.0)


def test_a_log_that_knows_too_little_is_refused_with_the_share(log, tmp_path):
    absent = next(it for it in some(30) if it not in CHOSEN)
    with pytest.raises(InputError, match=r"the baseline, .* on 0 questions .* most of"):
        answerable(log, tuned(), HALVES, absent)
    one = read_log([written(tmp_path / "one.jsonl", rows(RECORDED, CHOSEN[:1]))], "world")
    with pytest.raises(InputError, match=r"covers 1 of 2,760 configurations \(0\.\d% of"):
        answerable(one, tuned(), HALVES, CHOSEN[0])


def test_the_verdict_is_of_the_questions_that_both_were_evaluated_on(log):
    one, other = CHOSEN[:2]
    split = stratified(log.categories, np.random.default_rng(0))
    both = np.intersect1d(log.seen(one, split.held_out), log.seen(other, split.held_out))
    found = judged(log, tuned(), split.held_out, one, other)
    true = judge(*(RECORDED.evaluate(it, places(log, both)) for it in (one, other)), tuned())
    assert (found.gain, found.low) == (pytest.approx(true.gain), pytest.approx(true.low))
    assert found.queries == len(both) < len(split.held_out)
    with pytest.raises(InputError, match="share 0 of 40 held-out"):
        judged(log, tuned(), split.held_out, one, Configuration("rrf", k=3))
