"""How sure a gain over many splits of the same queries is: the interval against the truth."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import tuning
from benchmarks.tuning import TuningGain, corrected, paired
from benchmarks.units import half_width
from lab.made_up_collections import made_up
from steersman_systems.rag_tuner.configuration import Configuration

WHICH = Configuration()
CONFIGURATIONS, QUERIES, SPLITS = 30, 120, 40


def queries_of(rng, count):
    """How far ahead each configuration is on each query: alike, as they are, and hardly apart."""
    common = rng.normal(0, 0.15, count)
    own = rng.normal(0, 0.1, (CONFIGURATIONS, count))
    return MEANS[:, None] + common + own


MEANS = np.random.default_rng(9).normal(0.02, 0.01, CONFIGURATIONS)


def gained(ahead, rng):
    """Choose by half of the queries' part, judge on the other half; forty times."""
    found, reached = [], []
    for _ in range(SPLITS):
        order = rng.permutation(QUERIES)
        seen, held_out = order[: QUERIES // 3], order[QUERIES // 2 :]
        best = int(ahead[:, seen].mean(axis=1).argmax())
        found.append(TuningGain(WHICH, held_out, ahead[best, held_out]))
        reached.append(MEANS[best])
    return found, float(np.mean(reached))


@pytest.mark.slow
def test_the_interval_covers_the_truth_and_one_over_splits_does_not():
    rng = np.random.default_rng(0)
    tried = []
    for _ in range(250):
        splits, reached = gained(queries_of(rng, QUERIES), rng)
        mean, half = paired(splits, np.arange(QUERIES))
        naive = half_width(np.array([one.ahead.mean() for one in splits]))
        tried.append((mean, half, naive, corrected(splits), reached))
    mean, half, naive, wide, reached = np.array(tried).T
    off = np.abs(mean - reached.mean())
    assert 0.88 <= (off <= half).mean() <= 0.99  # 250 data sets tell a share to two hundredths
    assert (off <= naive).mean() < 0.6
    assert (off <= wide).mean() > (off <= half).mean()


def test_the_mean_is_that_over_splits():
    ahead = np.linspace(-0.1, 0.3, QUERIES)[None].repeat(CONFIGURATIONS, axis=0)
    splits, _ = gained(ahead, np.random.default_rng(0))
    mean, half = paired(splits, np.arange(QUERIES))
    assert mean == pytest.approx(np.mean([one.ahead.mean() for one in splits]))
    assert mean - half > 0


@pytest.mark.slow
def test_turns_of_a_conversation_are_held_out_together_and_count_as_one(monkeypatch):
    monkeypatch.setattr(tuning, "_EVALUATIONS", 2)
    monkeypatch.setattr(tuning, "_BASELINE", Configuration("hybrid", k=10))
    tuned = tuning.policies()["light"]
    recorded = made_up(tuned.space, np.random.default_rng(0), queries=24)
    talks = tuple(f"talk {place // 4}" for place in range(24))
    world = tuning.World(replace(recorded, groups=talks), tuned)
    for seed in range(3):
        held_out = tuning.held_out_gain(world, seed).held_out
        others = np.setdiff1d(np.arange(24), held_out)
        assert {talks[one] for one in held_out}.isdisjoint(talks[one] for one in others)
    ahead = np.repeat(np.random.default_rng(1).normal(size=6), 4)
    whole = [TuningGain(WHICH, np.arange(24), ahead)] * 2
    alone, together = (paired(whole, unit)[1] for unit in (np.arange(24), np.arange(24) // 4))
    assert together > 1.8 * alone
