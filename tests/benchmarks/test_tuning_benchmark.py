"""How sure a gain over many splits of the same queries is: the interval against the truth."""

import numpy as np
import pytest

from benchmarks.tuning import Gained, _half, corrected, paired
from steersman.systems.rag_tuner.configuration import Configuration

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
        found.append(Gained(WHICH, held_out, ahead[best, held_out]))
        reached.append(MEANS[best])
    return found, float(np.mean(reached))


@pytest.mark.slow
def test_the_interval_covers_the_truth_and_one_over_splits_does_not():
    rng = np.random.default_rng(0)
    tried = []
    for _ in range(250):
        splits, reached = gained(queries_of(rng, QUERIES), rng)
        mean, half = paired(splits, QUERIES)
        naive = _half(np.array([one.ahead.mean() for one in splits]))
        tried.append((mean, half, naive, corrected(splits), reached))
    mean, half, naive, wide, reached = np.array(tried).T
    off = np.abs(mean - reached.mean())
    assert 0.88 <= (off <= half).mean() <= 0.99  # 250 data sets tell a share to two hundredths
    assert (off <= naive).mean() < 0.6
    assert (off <= wide).mean() > (off <= half).mean()


def test_the_mean_is_that_over_splits():
    ahead = np.linspace(-0.1, 0.3, QUERIES)[None].repeat(CONFIGURATIONS, axis=0)
    splits, _ = gained(ahead, np.random.default_rng(0))
    mean, half = paired(splits, QUERIES)
    assert mean == pytest.approx(np.mean([one.ahead.mean() for one in splits]))
    assert mean - half > 0
