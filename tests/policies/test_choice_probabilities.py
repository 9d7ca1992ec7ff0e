"""Exact choice probabilities against adaptive quadrature, arm by arm."""

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import betainc, betaincc, betaln, expit, log_expit, log_ndtr
from scipy.stats import norm

from steersman.policies import beta_choice, gaussian_choice
from steersman.policies.beta_choice import beta_choice_probabilities
from steersman.policies.gaussian_choice import gaussian_choice_probabilities
from steersman.policies.gaussian_compiled import choose_compiled

OFFSETS = (-8, -4, -2, -1, 0, 1, 2, 4, 8)


def both_ways(means, sds):
    """Return what is answered, and what whoever has no compiler is answered."""
    answers = [gaussian_choice_probabilities(means, sds)]
    if len(means) > 3:
        answers.append(gaussian_choice._choose_with_numpy(means, sds))
    return answers


def gaussian_reference(means, sds):
    """Integrate each arm on its own scale, between all arms' own borders."""
    result = []
    for a, (mean, sd) in enumerate(zip(means, sds, strict=True)):

        def density(z, mean=mean, sd=sd, a=a):
            below = [
                log_ndtr((mean + sd * z - means[j]) / sds[j]) for j in range(len(means)) if j != a
            ]
            return math.exp(sum(below) - z * z / 2) / math.sqrt(math.tau)

        borders = {
            np.clip((m + k * s - mean) / sd, -10, 10) for m in means for s in sds for k in OFFSETS
        }
        ordered = sorted(borders)
        pieces = [quad(density, low, high, epsabs=1e-13)[0] for low, high in pairwise(ordered)]
        result.append(sum(pieces))
    return np.array(result)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_gaussian_agrees_with_adaptive_quadrature(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    means = rng.normal(size=count) * 10 ** rng.uniform(-3, 1)
    sds = 10 ** rng.uniform(-4, 2, size=count)
    expected = gaussian_reference(means, sds)
    for p in both_ways(means, sds):
        assert p == pytest.approx(expected, abs=1e-8)


def test_a_fixed_grid_fails_where_this_does_not():
    """One very well known arm at 0.3 among wide ones: its density fits between grid nodes."""
    means, sds = np.array([0.3, 0.0, 0.0]), np.array([1e-7, 1.0, 1.0])
    expected = norm.cdf(0.3) ** 2
    assert gaussian_choice_probabilities(means, sds)[0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_three_arms_agree_with_adaptive_quadrature_to_the_last_digits(seed):
    rng = np.random.default_rng(seed)
    sds = 10 ** rng.uniform(-2, 0, size=3)
    means = rng.normal(size=3) * 10 ** rng.uniform(-2, 0)
    expected = gaussian_reference(means, sds)
    assert gaussian_choice_probabilities(means, sds) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("means", "sds", "expected"),
    [
        # P of the first is a quadrant's mass, 1/2 - acos(ρ) / 2π, with ρ = s² / (s² + 1).
        ([0, 0, 0], [1, 1, 1], [1 / 3, 1 / 3, 1 / 3]),
        ([7, 7, 7], [1e6, 1, 1], [0.5 - np.arctan(np.sqrt(2e12 + 1) / 1e12) / (2 * np.pi)]),
        ([0, 0, 0], [2, 1, 1], [0.5 - np.arccos(0.8) / (2 * np.pi)]),
        # An arm with no spread to speak of wins where both others fall below it.
        ([0.3, 0, 0], [1e-6, 1, 1], [norm.cdf(0.3) ** 2]),
        ([0.3, 0, 0.1], [0, 1, 2], [norm.cdf(0.3) * norm.cdf(0.1)]),
        ([0.3, 0.3, 0], [0, 0, 1], [norm.cdf(0.3) / 2, norm.cdf(0.3) / 2, norm.sf(0.3)]),
        ([0.3, 0.1, 0], [0, 0, 1], [norm.cdf(0.3), 0, norm.sf(0.3)]),
        ([0, 0, 40], [1, 1, 1], [0, 0, 1]),
        ([1e-290, 0, 0], [0, 0, 0], [1 / 3, 1 / 3, 1 / 3]),
        ([1e-200, 0, 0], [1e-200, 0, 0], [norm.cdf(1), norm.sf(1) / 2, norm.sf(1) / 2]),
    ],
)
def test_three_arms_with_known_answers(means, sds, expected):
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0], [0, 2, 1]):
        p = np.empty(3)
        p[order] = gaussian_choice_probabilities(
            np.array(means, float)[order], np.array(sds, float)[order]
        )
        # What has no spread counts as 1e-9 wide.
        assert p[: len(expected)] == pytest.approx(expected, abs=1e-9 if 0 in sds else 5e-13)
        assert p.sum() == pytest.approx(1.0, abs=1e-15)


def panels_reference(means, sds):
    """Integrate all arms on short panels from end to end, with nothing left out."""
    borders = np.linspace((means - 8 * sds).max(), (means + 8 * sds).max(), 60)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = np.diff(borders)[:, None] / 2
    t, w = (borders[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
    log_below = norm.logcdf(t[:, None], means, sds)
    mass = w @ np.exp(norm.logpdf(t[:, None], means, sds) - log_below + log_below.sum(1)[:, None])
    return mass / mass.sum()


@pytest.mark.parametrize("ratio", [1.0, 1.1, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("apart", [0.0, 0.3, 2.0, 8.0])
@pytest.mark.parametrize("count", [4, 8, 40, 600])
def test_arms_of_like_spread_agree_to_ten_digits(count, apart, ratio):
    rng = np.random.default_rng([count, int(10 * apart), int(10 * ratio)])
    means, sds = apart * rng.random(count), ratio ** rng.random(count)
    expected = panels_reference(means, sds)
    for p in both_ways(means, sds):
        assert p == pytest.approx(expected, abs=1e-10)
        assert (p >= 0.0).all()
        assert p.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("ratio", [1.0, 3.0, 1e6])
@pytest.mark.parametrize("count", [4, 30, 1000])
def test_next_to_nothing_lies_below_where_the_integral_begins(count, ratio):
    """No more than e^-35; and not much less where arms are alike, or the integral would be long."""
    rng = np.random.default_rng([count, int(ratio)])
    means, sds = rng.normal(size=count), ratio ** rng.random(count)
    lowest = gaussian_choice._lowest(means, sds)
    below = norm.logcdf(lowest, means, sds).sum()
    assert below <= -35.0 + 1e-6
    if ratio < 1e6:
        assert below > -300.0


def crowd_reference(groups):
    """Integrate groups of alike arms over points that are dense on each group's own scale."""
    points = np.unique(
        np.concatenate([mean + sd * np.linspace(-9, 9, 40_001) for mean, sd, _ in groups])
    )
    log_below = [count * norm.logcdf(points, mean, sd) for mean, sd, count in groups]
    each = []
    for mean, sd, _ in groups:
        others = sum(log_below) - norm.logcdf(points, mean, sd)
        each.append(np.trapezoid(np.exp(norm.logpdf(points, mean, sd) + others), points))
    return np.array(each)


@pytest.mark.parametrize(
    "groups",
    [
        [(0.0, 0.1, 3000), (-3.0, 1.0, 3), (0.0, 10.0, 1)],
        [(0.0, 0.01, 5000), (0.01, 1.0, 2)],
        [(0.0, 0.001, 300), (0.0, 0.1, 1), (0.0, 1.0, 1)],
        [(0.0, 1.0, 5000), (3.8, 0.01, 1)],
        [(0.0, 1.0, 20), (2.9, 0.01, 1)],
    ],
)
def test_the_best_of_a_crowd_beside_few_of_another_spread(groups):
    """It is a narrow peak some spreads above the crowd's mean, which wide panels step over."""
    means = np.concatenate([np.full(count, mean) for mean, _, count in groups])
    sds = np.concatenate([np.full(count, sd) for _, sd, count in groups])
    counts = np.array([count for *_, count in groups])
    firsts = np.concatenate([[0], counts.cumsum()[:-1]])
    expected = crowd_reference(groups) * counts
    for p in both_ways(means, sds):
        assert p[firsts] * counts == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("count", [2, 3, 4, 40])
@pytest.mark.parametrize("far", [-1e6, -1e9, -1e300])
def test_an_arm_that_cannot_be_best_says_nothing_of_the_others(count, far):
    means, sds = np.linspace(0.0, 0.002, count), np.full(count, 1e-5)
    alone = both_ways(means, sds)
    beside = both_ways(np.append(means, far), np.append(sds, 0.01))
    for p, other in zip(beside, [*alone, alone[0]], strict=False):
        assert p[-1] == 0.0
        assert p[:-1].tolist() == other.tolist()
        assert other.argmax() == count - 1


def test_many_arms_are_replaced_by_few_where_that_is_cheaper(monkeypatch):
    """The integral over made-up arms equals that over the real ones."""
    rng = np.random.default_rng(1)
    means, sds = rng.normal(size=2000), rng.uniform(1.0, 2.0, 2000)
    few = gaussian_choice._choose_with_numpy(means, sds)
    monkeypatch.setattr(gaussian_choice, "_MOST_GRID", 0.0)
    all_of_them = gaussian_choice._choose_with_numpy(means, sds)
    assert few == pytest.approx(all_of_them, abs=1e-11)
    assert not np.array_equal(few, all_of_them)


@pytest.mark.parametrize("count", [4, 5, 7, 8, 9, 16, 17, 100, 1000])
@pytest.mark.parametrize("ratio", [1.2, 4.0, 50.0])
def test_eight_at_a_time_is_one_at_a_time(count, ratio):
    """However many are left over from the last eight, and wherever the impossible ones stand."""
    rng = np.random.default_rng([count, int(ratio)])
    means, sds = rng.normal(size=count), ratio ** rng.random(count)
    means[rng.random(count) < 0.2] = -1e4
    order = rng.permutation(count)
    (p, done), (again, _) = choose_compiled(means, sds), choose_compiled(means[order], sds[order])
    assert done or np.count_nonzero(p) <= 3
    assert again == pytest.approx(p[order], abs=1e-15)
    tolerance = 1e-11 if ratio < 10 else 1e-8
    if done:
        assert p == pytest.approx(gaussian_choice._choose_with_numpy(means, sds), abs=tolerance)


def test_threads_that_decide_at_once_do_not_share_memory():
    rng = np.random.default_rng(5)
    arms = [(rng.normal(size=n), rng.uniform(0.5, 1.5, size=n)) for n in (4, 9, 50, 4000, 7) * 4]
    alone = [choose_compiled(*one)[0] for one in arms]

    def again(_):
        return [choose_compiled(*one)[0] for one in arms]

    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(again, range(40)):
            for first, second in zip(alone, found, strict=True):
                assert np.array_equal(first, second)


def test_few_that_can_be_best_have_closed_forms():
    means, sds = np.array([0.0, -50.0, 0.3, -40.0, -30.0]), np.ones(5)
    possible, done = choose_compiled(means, sds)
    assert (possible.tolist(), done) == ([1.0, 0.0, 1.0, 0.0, 0.0], False)
    expected = [norm.sf(0.3 / np.sqrt(2)), 0, norm.cdf(0.3 / np.sqrt(2)), 0, 0]
    assert gaussian_choice_probabilities(means, sds) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(
    ("means", "sds"),
    [
        (np.zeros(5), 10.0 ** np.arange(-4, 1)),
        (np.zeros(5), np.zeros(5)),
        (np.zeros(4) + 1e200, np.full(4, 1e200)),
    ],
)
def test_what_equal_steps_cannot_do_is_left_to_numpy(means, sds):
    assert choose_compiled(means, sds) is None
    assert gaussian_choice_probabilities(means, sds).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("count", [2, 3, 9, 50, 1000])
def test_equal_arms_share_equally(count):
    for p in both_ways(np.full(count, 0.3), np.full(count, 0.2)):
        assert p == pytest.approx(np.full(count, 1.0 / count), rel=1e-12)


def test_arms_without_spread_are_compared_as_numbers():
    p = gaussian_choice_probabilities(np.array([1.0, 2.0, 2.0]), np.zeros(3))
    assert p == pytest.approx([0.0, 0.5, 0.5])
    assert gaussian_choice_probabilities(np.zeros(3), np.zeros(3)) == pytest.approx([1 / 3] * 3)


@pytest.mark.slow
def test_many_arms_agree_with_draws():
    rng = np.random.default_rng(3)
    means, sds = rng.normal(size=200) * 0.3, 10 ** rng.uniform(-2, 0, 200)
    draws = np.concatenate(
        [rng.normal(means, sds, size=(20_000, 200)).argmax(axis=1) for _ in range(10)]
    )
    expected = gaussian_choice_probabilities(means, sds) * len(draws)
    counts = np.bincount(draws, minlength=200)
    often = expected > 20
    chi = ((counts - expected) ** 2 / np.maximum(expected, 1e-9))[often]
    assert chi.mean() == pytest.approx(1.0, abs=6 * np.sqrt(2 / often.sum()))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.one_of(st.just(0.0), st.floats(1e-9, 1e6))),
        min_size=1,
        max_size=12,
    )
)
def test_gaussian_is_always_a_distribution(arms):
    means, sds = np.array(arms).T
    answers = both_ways(means, sds)
    for p in answers:
        assert np.isfinite(p).all()
        assert (p >= 0).all()
        assert p.sum() == pytest.approx(1.0, abs=1e-12)
        assert p == pytest.approx(answers[0], abs=1e-7)


def beta_reference(a, b):
    """Integrate each arm over its logit, with tails taken from the side where they are small."""
    grid = np.concatenate(
        (np.linspace(-690, -40, 30), np.linspace(-39, 39, 200), np.linspace(40, 690, 30))
    )
    result = []
    for k in range(len(a)):

        def density(s, k=k):
            log_f = a[k] * log_expit(s) + b[k] * log_expit(-s) - betaln(a[k], b[k])
            others = [
                betainc(a[j], b[j], expit(s)) if s < 0 else betaincc(a[j], b[j], expit(s))
                for j in range(len(a))
                if j != k
            ]
            below = [
                o if s < 0 else 1 - betainc(b[j], a[j], expit(-s))
                for j, o in zip([j for j in range(len(a)) if j != k], others, strict=True)
            ]
            return math.exp(log_f) * math.prod(below)

        pieces = [quad(density, lo, hi, epsabs=1e-12)[0] for lo, hi in pairwise(grid)]
        result.append(sum(pieces))
    return np.array(result)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_beta_agrees_with_adaptive_quadrature(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 4))
    a, b = 10 ** rng.uniform(-1, 3, (2, count))
    assert beta_choice_probabilities(a, b) == pytest.approx(beta_reference(a, b), abs=1e-7)


@pytest.mark.parametrize(
    ("count", "within"), [(1e8, 4e-9), (1e9, 4e-9), (1e10, 4e-9), (1e12, 1e-4), (1e13, 1e-4)]
)
@pytest.mark.parametrize("rate", [0.03, 0.5, 0.9])
def test_beta_of_very_many_counts_is_the_normal_limit(count, within, rate):
    """Logarithms of such densities are a thousand million and differ by less than their digits."""
    apart = np.array([0.0, 0.7, -0.4]) * np.sqrt(rate * (1.0 - rate) / count)
    a = np.round(count * (rate + apart))
    b = count - a
    mean, sd = a / count, np.sqrt(a * b / count**2 / (count + 1.0))
    limit = gaussian_choice_probabilities((mean - rate) / sd[0], sd / sd[0])
    assert beta_choice_probabilities(a, b) == pytest.approx(limit, abs=within + 2 / count**0.5)
    # Each is integrated by itself: that one of them is the best is sure.
    assert beta_choice._integrate(a, b, np.ones(3)).sum() == pytest.approx(1.0, abs=within)


@pytest.mark.parametrize(("a", "b"), [(3e6, 5e6), (1e-3, 2e6), (1e6, 0.3), (7.0, 1e7), (4e5, 6e5)])
def test_beta_densities_of_many_counts_are_those_of_few(a, b):
    at = np.log(a) - np.log(b) + np.linspace(-3.0, 3.0, 13)[:, None] / np.sqrt(min(a, b, 1e6))
    plain = a * log_expit(at) + b * log_expit(-at) - betaln(a, b)
    found = beta_choice._log_density_of_many(np.array([a]), np.array([b]), at)
    assert found == pytest.approx(plain, abs=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["alike", "of all sizes", "one well known", "rare"])
def test_beta_of_many_arms_agrees_with_short_panels_throughout(kind):
    rng, count = np.random.default_rng(0), 80
    a, b = {
        "alike": rng.integers(1, 60, (2, count)).astype(float),
        "of all sizes": 10 ** rng.uniform(-1, 3, (2, count)),
        "one well known": np.concatenate(
            (10 ** rng.uniform(-1, 1, (2, count - 1)), [[8e3], [2e3]]), axis=1
        ),
        "rare": np.array([1.0 + rng.integers(0, 3, count), 1.0 + rng.integers(0, 300, count)]),
    }[kind]
    far = np.geomspace(10.0, 600.0, 300)
    borders = np.concatenate((-far[:0:-1], np.linspace(-10.0, 10.0, 1001), far[1:]))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = np.diff(borders)[:, None] / 2
    s, w = (borders[:-1, None] + half * (1 + nodes)).reshape(-1, 1), (half * weights).ravel()
    below = np.where(s < 0, betainc(a, b, expit(s)), betaincc(b, a, expit(-s)))
    with np.errstate(divide="ignore"):
        below = np.maximum(np.log(below), -800.0)
    density = a * log_expit(s) + b * log_expit(-s) - betaln(a, b)
    expected = w @ np.exp(density - below + below.sum(axis=1)[:, None])
    assert expected.sum() == pytest.approx(1.0, abs=1e-8)
    assert beta_choice_probabilities(a, b) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@given(
    st.integers(2, 40).flatmap(
        lambda n: st.tuples(*[st.lists(st.floats(0.01, 1e6), min_size=n, max_size=n)] * 2)
    )
)
def test_joined_panels_are_as_short_as_every_arm_wants(counts):
    a, b = np.array(counts)
    own = np.sort(np.column_stack((beta_choice._quantiles(a, b), -beta_choice._quantiles(b, a))))
    borders = np.unique(own)
    if len(borders) < 2:
        return
    joined = beta_choice._joined(borders, own)
    assert set(joined) <= set(borders)
    assert (joined[0], joined[-1]) == (borders[0], borders[-1])
    assert (np.diff(joined) > 0).all()
    alone = set(pairwise(borders))
    for begin, end in pairwise(joined):
        gaps = np.diff(own)[(own[:, :-1] < end) & (own[:, 1:] > begin)]
        gaps = gaps[gaps > 0]
        assert (begin, end) in alone or end - begin <= gaps.min() / 2


def test_beta_panels_are_split_where_they_are_too_wide():
    borders, widest = np.array([0.0, 1.0, 10.0, 10.0]), np.array([4.0, 4.0, 4.0])
    assert beta_choice._split_wide(borders, widest).tolist() == [0.0, 1.0, 4.0, 7.0, 10.0]
    a, b = np.array([1e-3, 2e-3]), np.array([1e-3, 3e-3])
    assert beta_choice._integrate(a, b, np.ones(2)).sum() == pytest.approx(1.0, abs=1e-8)


def test_beta_with_whole_counts_is_the_known_sum():
    """P(X > Y) for X ~ Beta(a, b), Y ~ Beta(c, d) with whole parameters (a finite sum)."""
    a, b, c, d = 7, 4, 5, 6
    total = sum(
        np.exp(betaln(c + i, b + d) - np.log(b + i) - betaln(1 + i, b) - betaln(c, d))
        for i in range(a)
    )
    p = beta_choice_probabilities(np.array([a, c], float), np.array([b, d], float))
    swapped = 1.0 - total
    assert min(abs(p[0] - total), abs(p[1] - swapped)) < 1e-9


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 1e5), st.floats(0.01, 1e5)), min_size=1, max_size=8))
def test_beta_is_always_a_distribution(arms):
    a, b = np.array(arms).T
    p = beta_choice_probabilities(a, b)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([0.001, 1.001], [0.001, 0.001]),
        ([0.001, 0.001, 0.001], [0.001, 1.001, 0.001]),
        ([0.002, 0.03, 0.04, 2.0], [0.01, 0.001, 0.05, 0.004]),
        ([0.001, 0.01], [1e3, 0.005]),
    ],
)
def test_beta_counts_near_0_lie_nearer_to_0_and_1_than_numbers_can(a, b):
    """Against draws of their logits: the logarithm of a gamma variable is drawn without it."""
    rng, draws = np.random.default_rng(0), 400_000

    def log_gamma(shape):
        return np.log(rng.gamma(shape + 1.0, size=draws)) + np.log(rng.random(draws)) / shape

    logits = [log_gamma(one) - log_gamma(other) for one, other in zip(a, b, strict=True)]
    drawn = np.bincount(np.argmax(logits, axis=0), minlength=len(a)) / draws
    exact = beta_choice_probabilities(np.array(a), np.array(b))
    assert (np.abs(exact - drawn) < 4.0 * np.sqrt(exact * (1.0 - exact) / draws) + 1e-5).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [4, 9, 100])
def test_what_is_no_number_is_not_taken_for_an_arm_that_cannot_win(wrong, count):
    for side in range(2):
        arms = np.zeros(count), np.ones(count)
        arms[side][count // 2] = wrong
        assert choose_compiled(*arms) is None
