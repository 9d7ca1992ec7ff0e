"""The assistant's benchmarks: fits that find what was put in, honest intervals, clear refusals."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import arrival_laws, cache, intents
from benchmarks.report import Options
from benchmarks.shares import share
from steersman.errors import DataError
from steersman_systems.assistant.arrivals import REUSE, LoadLaw, arrival_times


def test_the_fit_of_the_reuse_law_finds_the_law_a_stream_was_drawn_from() -> None:
    rng = np.random.default_rng(0)
    keys, times = [], []
    for key, first in enumerate(rng.uniform(0, REUSE.horizon_s, 4000)):
        at, seen = float(first), 1
        while at < REUSE.horizon_s:
            keys.append(key)
            times.append(at)
            if rng.random() > float(REUSE.chance(seen)):
                break
            at, seen = at + rng.lognormal(REUSE.gap_log_mean, REUSE.gap_log_sd), seen + 1
    order = np.argsort(times)
    returns = arrival_laws._returns(np.array(keys)[order], np.array(times)[order])
    best, errors = arrival_laws._maximum_likelihood(*returns)
    truth = np.array([REUSE.a, REUSE.b, REUSE.gap_log_mean, REUSE.gap_log_sd])
    assert np.all(np.abs(best - truth) < 4 * errors)
    assert np.all(errors < [0.25, 0.5, 0.1, 0.1])


def test_the_fit_of_the_load_law_finds_the_law_times_were_drawn_from() -> None:
    law = LoadLaw(log_sd=0.4, correlation_s=40.0)
    fits = [
        arrival_laws._fit_load(
            arrival_times(20_000, np.random.default_rng(seed), duration_s=3500.0, law=law)
        )
        for seed in range(4)
    ]
    assert np.mean([fit.log_sd for fit in fits]) == pytest.approx(0.4, rel=0.15)
    assert np.mean([fit.correlation_s for fit in fits]) == pytest.approx(40.0, rel=0.35)


def test_an_lru_cache_hits_what_it_holds() -> None:
    assert arrival_laws._lru_hit_rate([1, 2, 1, 3, 1, 2], 2) == 2 / 6
    assert arrival_laws._lru_hit_rate([1, 2, 1, 3, 1, 2], 3) == 3 / 6


@pytest.mark.slow
def test_intervals_of_shares_cover_and_widen_with_clusters() -> None:
    rng = np.random.default_rng(1)
    covered = [
        (figure := share("x", rng.random(400) < 0.3)).low <= 0.3 <= figure.high for _ in range(40)
    ]
    assert sum(covered) >= 33
    rows = np.repeat(rng.random(100) < 0.3, 10)
    alone, together = share("x", rows), share("x", rows, clusters=np.repeat(np.arange(100), 10))
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert together.value == alone.value == rows.mean()


def test_the_share_of_nothing_is_not_a_number() -> None:
    assert np.isnan(share("x", np.array([True]), np.array([False])).value)


def test_a_share_of_none_or_of_all_is_not_certain() -> None:
    every, none = share("x", np.ones(20, bool)), share("x", np.zeros(20, bool))
    assert (every.value, every.high, none.value, none.low) == (1.0, 1.0, 0.0, 0.0)
    assert every.low == pytest.approx(0.025 ** (1 / 20))
    assert none.high == pytest.approx(1 - every.low)
    few = share("x", np.ones(20, bool), clusters=np.arange(20) // 10)
    assert few.low < 0.2  # two clusters


def test_ranks_give_the_area_under_the_curve() -> None:
    same = np.array([True, True, False, False])
    assert cache._area(np.array([0.9, 0.4, 0.4, 0.1]), same) == pytest.approx(0.875)


@pytest.mark.parametrize(
    ("run", "sets"),
    [(cache.run, "laws"), (cache.run, "paraphrases"), (intents.run, "clinc150")],
)
def test_missing_data_are_named_with_their_origin(run, sets, tmp_path) -> None:
    with pytest.raises(DataError, match=r"no data directory was named.*github"):
        list(run(Options(sets=(sets,))))
    (tmp_path / "cache").mkdir()
    (tmp_path / "intents").mkdir()
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match="is not a parquet file with columns"):
        list(run(Options(data=tmp_path, sets=(sets,))))


def test_utterances_of_any_name_are_measured_as_far_as_their_splits_go(tmp_path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("pyarrow")
    from pyarrow import Table, parquet  # noqa: PLC0415 - an extra

    folder = tmp_path / "intents"
    folder.mkdir()
    texts = [f"{('transfer money', 'wie spät ist es')[i % 2]} number {i}" for i in range(60)]
    rows = {"split": ["train"] * 40 + ["test"] * 20, "text": texts, "intent": ["a", "b"] * 30}
    parquet.write_table(Table.from_pydict(rows), folder / "own.parquet")
    options = Options(data=tmp_path, sets=("own",))
    accuracy, took = intents.run(options)
    assert accuracy.name == "own: accuracy on 20 in-scope utterances, 2 intents"
    assert accuracy.value == 1.0
    assert took.name == "own: time of one prediction, 40 examples"
    rows["split"] = ["train"] * 20 + ["test"] * 20 + ["oos_test"] * 20
    parquet.write_table(Table.from_pydict(rows), folder / "own.parquet")
    assert any("area under ROC" in one.name for one in intents.run(options))
    for change, told in (
        ({"split": ["train"] * 60}, "has the splits train; train and test must be there"),
        ({"intent": ["a"] * 60}, "two intents or more in train"),
        ({"text": [None, *texts[1:]]}, "holds something else than texts"),
    ):
        parquet.write_table(Table.from_pydict(rows | change), folder / "own.parquet")
        with pytest.raises(DataError, match=told):
            list(intents.run(options))


@pytest.mark.parametrize("run", [cache.run, intents.run])
def test_unknown_sets_are_refused(run) -> None:
    with pytest.raises(DataError, match="unknown set nope; known are"):
        list(run(Options(sets=("nope",))))
