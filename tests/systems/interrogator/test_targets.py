"""Targets are unit vectors; equal texts are one target and never on both sides of the split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.interrogator.targets import WARM_SHARE, Target, part_of, without_repeats


@pytest.mark.parametrize(
    ("vector", "says"),
    [
        ([0.0, 0.0], "zero vector.*leave this target out"),
        ([1.0, np.nan], "nan at place 1 .1 such in all.*embed the text again"),
        ([np.inf, 1.0], "inf at place 0"),
        ([[1.0, 0.0]], r"shape \(1, 2\).*one embedding at a time"),
        ([], "shape"),
        ("text", "not a vector"),
        (None, "shape|nan"),
        (np.array([1 + 2j, 0]), "real numbers"),
        ([1 + 2j, 0], "real numbers"),
    ],
)
def test_target_of_a_bad_vector_says_what_is_wrong(vector, says):
    with pytest.raises(InputError, match=says):
        Target.of_vector(vector)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_only_the_direction_counts(scale):
    target = Target.of_vector([3 * scale, 4 * scale])
    np.testing.assert_allclose(target.vector, [0.6, 0.8], rtol=1e-15)


def test_a_target_does_not_share_the_callers_array():
    own = np.array([1.0, 0.0])
    target = Target.of_vector(own)
    own[:] = 0.0
    assert target.vector.tolist() == [1.0, 0.0]


@given(st.text(max_size=40))
def test_case_and_spaces_do_not_move_a_text_to_the_other_part(text):
    assert part_of(f"  {text}\n") == part_of(text)


def test_the_parts_have_the_declared_shares():
    warm = np.mean([part_of(f"text number {i}") == "warm" for i in range(4_000)])
    assert warm == pytest.approx(WARM_SHARE, abs=0.03)


def test_of_equal_texts_the_first_is_kept():
    texts = ["Hello, world!", "hello world", None, None, "?", "!"]
    targets = [Target.of_vector([1.0], text=text, row=i) for i, text in enumerate(texts)]
    assert [target.row for target in without_repeats(targets)] == [0, 2, 3, 4, 5]
