"""Places of units are uniform and fixed; shares may only grow, and then no unit changes its arm."""

import math
from hashlib import sha256
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from steersman.errors import InputError
from steersman.rollouts.units import place, position

places = st.floats(0, 1, exclude_max=True)
halves = st.floats(0, 0.5)
texts = st.text(st.characters(exclude_characters="\0"), max_size=40)


@given(texts, st.text(max_size=40))
def test_a_place_is_the_hash_and_lies_below_one(salt, unit):
    h = position(salt, unit)
    assert 0.0 <= h < 1.0
    data = f"{salt}\0{unit}".encode("utf-8", "surrogatepass")
    whole = int.from_bytes(sha256(data).digest()[:8], "big")
    assert h == pytest.approx(whole / 2**64, abs=2**-52)


def test_known_places():
    # Other programs that place units by themselves must come to these.
    assert position("r1", "user-7") == 0.8454528796759135
    assert position("r1", "") == 0.9949843925584159
    assert position("r1", "Grüße 👋") == 0.23645831757383895


def test_places_are_uniform_and_unrelated_between_salts():
    first = np.array([position("a", f"user-{i}") for i in range(20_000)])
    second = np.array([position("b", f"user-{i}") for i in range(20_000)])
    assert stats.kstest(first, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(20_000)


def test_a_salt_with_a_zero_byte_is_refused():
    # "a\0b" with unit "c" and "a" with unit "b\0c" would be one text.
    with pytest.raises(InputError, match="zero byte"):
        position("a\0b", "c")


@given(places, st.lists(halves, min_size=2, max_size=6), halves)
def test_growing_shares_never_move_a_unit_between_analysed_arms(h, shares, holdback):
    shares.sort()
    holdback = min(holdback, shares[-1])
    steps = [place(h, "canary", shares[0]), *(place(h, "ab", share) for share in shares[1:])]
    for before, after in pairwise(steps):
        if before.analysed:
            assert after == before
        if before.arm == "candidate":
            assert after.arm == "candidate"
    live = place(h, "live", 1 - holdback, holdback)
    if steps[-1].arm == "candidate":
        assert live.arm == "candidate"
    if live.analysed:
        assert steps[-1] == live


@given(places, halves)
def test_analysed_pieces_are_mirror_images(h, share):
    # Both are h below the share, seen from their end of the line.
    mirrored = math.nextafter(1.0, 0.0) - h
    placed, other = place(h, "ab", share), place(mirrored, "ab", share)
    if abs(h - share) > 1e-9 and abs(h - (1 - share)) > 1e-9 and placed.analysed and h != 0.5:
        assert other.analysed
        assert other.arm != placed.arm


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.25, 0.5])
def test_both_arms_are_of_the_planned_size(share):
    found = [place(position("s", str(i)), "ab", share) for i in range(20_000)]
    for arm in ("candidate", "control"):
        count = sum(placed == (arm, True) for placed in found)
        assert count == pytest.approx(20_000 * share, abs=4 * math.sqrt(20_000 * share))
    if share == 0.5:
        assert all(placed.analysed for placed in found)


def test_stages_at_their_edges():
    assert place(0.0499, "canary", 0.05) == ("candidate", True)
    assert place(0.05, "canary", 0.05) == ("control", False)
    assert place(0.95, "canary", 0.05) == ("control", True)
    assert place(0.3, "shadow", 0.0) == ("control", True)
    assert place(0.9499, "live", 0.95, 0.05) == ("candidate", False)
    assert place(0.0499, "live", 0.95, 0.05) == ("candidate", True)
    assert place(0.95, "live", 0.95, 0.05) == ("control", True)
    assert place(0.999, "live", 1.0, 0.0) == ("candidate", False)
    assert place(0.0, "canary", 0.0) == ("control", False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1.0, "ab", 0.5), "invalid h 1.0"),
        ((math.nan, "ab", 0.5), "invalid h nan"),
        ((0.5, "ab", 0.51), "invalid share 0.51"),
        ((0.5, "ab", -0.1), "invalid share -0.1"),
        ((0.5, "live", 0.4, 0.6), "invalid holdback 0.6"),
        ((0.5, "beta", 0.5), "invalid stage 'beta'"),
    ],
)
def test_what_is_no_place(arguments, said):
    with pytest.raises(InputError, match=said):
        place(*arguments)
