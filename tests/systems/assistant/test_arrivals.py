"""The stream of requests: complete, seeded, and true to the laws it claims."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.assistant.arrivals import (
    LOAD,
    REUSE,
    LoadLaw,
    arrival_times,
    arrivals,
    expected_arrivals,
    guardian_states,
)


@pytest.mark.slow
@given(n=st.integers(1, 60), extra=st.integers(0, 300), seed=st.integers(0, 2**32 - 1))
def test_every_request_comes_and_the_length_is_exact(n: int, extra: int, seed: int) -> None:
    stream = arrivals(n, n + extra, np.random.default_rng(seed))
    assert stream.shape == (n + extra,)
    assert set(stream.tolist()) == set(range(n))


def test_a_seed_names_one_stream() -> None:
    one, same, other = (arrivals(50, 90, np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.slow
def test_first_arrivals_are_in_random_order() -> None:
    rng = np.random.default_rng(5)
    leaders = Counter(int(arrivals(4, 7, rng)[0]) for _ in range(4000))
    assert all(abs(leaders[k] - 1000) < 4 * np.sqrt(750) for k in range(4))


def test_numbers_of_arrivals_follow_the_waring_law_when_nothing_is_cut() -> None:
    law = replace(REUSE, horizon_s=1e12)
    n, mean = 20_000, 1 + REUSE.a / (REUSE.b - 1)
    counts = np.bincount(arrivals(n, round(n * mean * 0.99), np.random.default_rng(7), law=law))
    assert np.mean(counts == 1) == pytest.approx(1 - float(law.chance(1)), abs=0.02)
    assert np.mean(counts[counts >= 3] >= 4) == pytest.approx(float(law.chance(3)), abs=0.03)


def test_gaps_have_the_median_of_the_law_when_nothing_is_cut() -> None:
    law = replace(REUSE, horizon_s=1e5)
    stream = arrivals(20_000, 36_000, np.random.default_rng(11), law=law)
    last: dict[int, int] = {}
    gaps = []
    for position, request in enumerate(stream.tolist()):
        if request in last:
            gaps.append(position - last[request])
        last[request] = position
    seconds = np.median(gaps) * law.horizon_s / len(stream)
    assert seconds / np.exp(law.gap_log_mean) == pytest.approx(1.0, abs=0.1)


def test_more_popular_requests_are_likelier_to_return() -> None:
    chances = REUSE.chance(np.arange(1, 50))
    assert np.all(np.diff(chances) > 0)
    assert 0 < chances[0] < chances[-1] < 1


def test_expected_arrivals_keep_the_share_of_repeats() -> None:
    assert 1 - 1311 / expected_arrivals(1311) == pytest.approx(1 - 7373 / 12031, abs=1e-3)


def test_times_ascend_within_the_stream_and_are_seeded() -> None:
    times = arrival_times(500, np.random.default_rng(0), duration_s=100.0)
    assert np.all(np.diff(times) >= 0)
    assert 0 <= times[0] <= times[-1] <= 100
    np.testing.assert_array_equal(
        times, arrival_times(500, np.random.default_rng(0), duration_s=100.0)
    )
    assert arrival_times(0, np.random.default_rng(0)).shape == (0,)


@pytest.mark.parametrize(("law", "low", "high"), [(LOAD, 11, 23), (LoadLaw(0.0, 300.0), 0.7, 1.3)])
def test_counts_bunch_as_the_load_law_says(law: LoadLaw, low: float, high: float) -> None:
    fano = []
    for seed in range(20):
        times = arrival_times(19_366, np.random.default_rng(seed), duration_s=3501.0, law=law)
        counts = np.histogram(times, np.arange(0, 3501, 60))[0]
        fano.append(counts.var(ddof=1) / counts.mean())
    assert low < np.mean(fano) < high


def test_the_guardian_looks_back_only() -> None:
    times = arrival_times(800, np.random.default_rng(2), duration_s=1200.0)
    states = guardian_states(times)
    later = times.copy()
    later[500:-1] = np.sort(np.random.default_rng(3).uniform(later[500], later[-1], 299))
    assert guardian_states(later)[:500] == states[:500]
    assert set(states) <= {"normal", "brownout", "emergency"}


def test_the_guardian_of_an_empty_stream_has_nothing_to_say() -> None:
    assert guardian_states(np.array([])) == []
    assert guardian_states(np.array([0.0, 0.0])) == ["normal", "normal"]


def test_bad_arguments_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="n_requests is 0"):
        arrivals(0, 4, rng)
    with pytest.raises(InputError, match="n_arrivals is 3; allowed: 4"):
        arrivals(4, 3, rng)
    with pytest.raises(InputError, match="duration_s is nan"):
        arrival_times(3, rng, duration_s=float("nan"))
    with pytest.raises(InputError, match="n_arrivals is -1"):
        arrival_times(-1, rng)
    with pytest.raises(InputError, match="ascending"):
        guardian_states(np.array([1.0, 0.0]))
    with pytest.raises(InputError, match=r"brownout 2\.0, emergency 1\.5"):
        guardian_states(np.array([0.0, 1.0]), brownout=2.0)
    with pytest.raises(InputError, match="a of the law is 0"):
        replace(REUSE, a=0.0)
