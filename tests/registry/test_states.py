"""States as bytes: exact, deterministic, and refused before they can do harm."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import StateError
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import pack_state, unpack_state
from steersman.policies import BetaThompson, LinTS


@pytest.mark.parametrize("policy", [LinTS(["a", "b"], dim=3), BetaThompson(["a", "b"])])
def test_a_policy_comes_back_as_it_was(policy):
    x = "key" if policy.algorithm == "beta_thompson" else np.array([1.0, 0.1, -0.2])
    policy.learn(x, "a", 0.3)
    data = pack_state(policy.state())
    assert pack_state(load_policy(unpack_state(data)).state()) == data


def test_the_bytes_do_not_depend_on_order_or_layout_in_memory():
    sums = np.arange(12.0).reshape(3, 4)
    state = {"b": sums, "a": np.array(2.0), "e": np.zeros((0, 3))}
    turned = {"e": np.zeros((0, 3)), "a": np.array(2.0), "b": np.asfortranarray(sums)}
    assert pack_state(state) == pack_state(turned)
    assert pack_state({**state, "b": np.repeat(sums, 2, axis=0)[::2]}) == pack_state(state)
    back = unpack_state(pack_state(turned))
    assert np.array_equal(back["b"], sums)
    assert back["a"].shape == ()


def test_what_comes_back_can_be_written_to():
    back = unpack_state(pack_state({"a": np.arange(3.0)}))
    back["a"] += 1.0
    assert back["a"].tolist() == [1.0, 2.0, 3.0]


HEADER = b'{"a":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}}'


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (
            pack_state({"a": np.zeros(1000)}),
            {"max_bytes": 8000},
            r"has 8,\d+ bytes, the maximum is 8,000",
        ),
        # The header promises more than there is.
        (struct.pack("<Q", len(HEADER)) + HEADER, {}, "damaged"),
        (struct.pack("<Q", 2**63) + HEADER, {}, "damaged"),
    ],
)
def test_unpack_state_with_bad_data_says_why(data, options, said):
    with pytest.raises(StateError, match=said):
        unpack_state(data, **options)


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.complex128])
def test_other_kinds_of_numbers_are_refused(kind):
    with pytest.raises(StateError, match="allowed: float64, uint8"):
        pack_state({"a": np.zeros(3, dtype=kind)})


@given(data=st.data())
def test_damage_is_refused_or_harmless(data):
    packed = bytearray(pack_state({"meta": np.zeros(4, dtype=np.uint8), "a": np.ones(3)}))
    kind = data.draw(st.sampled_from(["cut", "flip", "grow"]))
    place = data.draw(st.integers(0, len(packed) - 1))
    if kind == "cut":
        del packed[place:]
    elif kind == "flip":
        packed[place] ^= data.draw(st.integers(1, 255))
    else:
        packed += data.draw(st.binary(min_size=1, max_size=20))
    try:
        state = unpack_state(bytes(packed))
    except StateError:
        return
    assert sum(array.nbytes for array in state.values()) <= len(packed)
