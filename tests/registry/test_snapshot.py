"""Snapshots as bytes: the same always, and nothing but what was packed comes out."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.errors import SnapshotError, VerificationError
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import pack_state, zstd
from steersman.policies import (
    BetaThompson,
    EpsilonGreedy,
    Fixed,
    JointLinTS,
    JointSquareCB,
    KernelUCB,
    LinTS,
    LinUCB,
    Rules,
)
from steersman.registry.snapshot import check_state, pack_snapshot, unpack_snapshot

POLICIES = {
    "beta_thompson": lambda: BetaThompson(["a", "b"]),
    "epsilon_greedy": lambda: EpsilonGreedy(["a", "b"], dim=2),
    "fixed": lambda: Fixed(["a", "b"], "a"),
    "joint_lin_ts": lambda: JointLinTS((), dim=2),
    "joint_squarecb": lambda: JointSquareCB(["a", "b"], dim=2),
    "kernel_ucb": lambda: KernelUCB(["a", "b"], dim=2, random_features=3),
    "lin_ts": lambda: LinTS(["a", "b"], dim=2),
    "rules": lambda: Rules(["a", "b"], [("True", "a")]),
}


def _learned(rows=200):
    rng = np.random.default_rng(0)
    policy = LinTS(["a", "b", "c"], dim=6)
    policy.learn_batch(
        rng.normal(size=(rows, 6)), [*"abc"] * (rows // 3) + ["a"] * (rows % 3), rng.random(rows)
    )
    return policy


def test_a_policy_comes_back_as_it_was():
    for policy in (_learned(), BetaThompson(["a", "b"]), Fixed(["a"], "a"), LinUCB(["a"], dim=1)):
        data = pack_snapshot(policy.state())
        back = load_policy(unpack_snapshot(data))
        assert pack_snapshot(back.state()) == data
        assert pack_state(back.state()) == pack_state(policy.state())


@pytest.mark.slow
def test_the_bytes_are_the_same_in_every_process():
    program = (
        "import hashlib, numpy as np\n"
        "from steersman.policies import LinTS\n"
        "from steersman.registry.snapshot import pack_snapshot\n"
        "rng = np.random.default_rng(0)\n"
        "policy = LinTS(['a', 'b', 'c'], dim=6)\n"
        "policy.learn_batch(rng.normal(size=(200, 6)), ['a', 'b', 'c'] * 66 + ['a'] * 2,"
        " rng.random(200))\n"
        "print(hashlib.sha256(pack_snapshot(policy.state())).hexdigest())\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            env={"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_a_frame_declares_its_size_and_carries_a_checksum():
    data = pack_snapshot(_learned().state())
    assert zstd.get_frame_info(data).decompressed_size == len(pack_state(_learned().state()))
    assert data[4] & 0b100  # the descriptor's checksum flag, RFC 8878, 3.1.1.1.1
    assert len(data) <= zstd.get_frame_info(data).decompressed_size


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["gram", "moment", "count", "plays"])
def test_numbers_that_are_none_are_neither_packed_nor_unpacked(name, bad):
    state = _learned().state()
    state[name].flat[-1] = bad
    with pytest.raises(VerificationError, match="NaN or infinity"):
        pack_snapshot(state)
    with pytest.raises(VerificationError, match=f"{name}' holds NaN or infinity"):
        unpack_snapshot(_compressed(pack_state(state)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.update(moment=np.zeros((3, 5))), "must have shape"),
        (lambda state: state.update(gram=state["gram"][:, :-1]), "does not have the shape"),
        (lambda state: state.update(more=np.zeros(1)), "unknown arrays"),
        (lambda state: state.pop("count"), "must have shape"),
        (lambda state: state.update(plays=-state["plays"]), "negative counts"),
        (lambda state: state.update(moment=state["moment"].astype(np.float32)), "float64"),
        (lambda state: state.pop("meta"), "no header"),
        (lambda state: state.update(meta=_json({"algorithm": "lin_ts"})), "with a 'config'"),
        (lambda state: _edit(state, algorithm="of tomorrow"), "this version knows"),
        (lambda state: _edit(state, version=99), "format version 99"),
        (lambda state: _edit(state, updates=-1), "whole number"),
        (
            lambda state: _edit(state, config={"actions": ["a", "a", "b"], "dim": 6}),
            "duplicate action",
        ),
    ],
)
def test_what_no_policy_reads_is_refused(change, message):
    state = _learned().state()
    change(state)
    with pytest.raises(VerificationError, match=message):
        check_state(state)


def test_shapes_without_numbers_promise_no_memory():
    header = json.loads(KernelUCB(["a"], dim=2, random_features=2).state()["meta"].tobytes())
    header["config"].update(dim=12_000, random_features=4096)
    size = 16_096 * 16_097 // 2
    state = {
        "meta": _json(header),
        "gram": np.zeros((0, size)),
        "moment": np.zeros((0, 16_096)),
        "count": np.zeros(1),
        "plays": np.zeros(1),
    }
    with pytest.raises(VerificationError, match="too large for its data"):
        check_state(state)
    with pytest.raises(VerificationError, match="too large for its data"):
        unpack_snapshot(_compressed(pack_state(state)))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (b"[" * 90_000, "not JSON"),
        (b'{"a":' * 90_000, "not JSON"),
        (b"[" + b"[]," * 200_000 + b"[]]", "lists and objects"),
        (b'"' + b"a" * (9 * 1024 * 1024) + b'"', "has 9,437,186 bytes"),
        (b"", "has 0 bytes"),
        (b"\xff\xfe", "not JSON"),
        (b"9" * 5000, "not JSON"),
        (b'["a"]', "must be an object"),
    ],
)
def test_a_header_is_bounded(meta, message):
    state = {**_learned(3).state(), "meta": np.frombuffer(meta, dtype=np.uint8)}
    with pytest.raises(VerificationError, match=message):
        check_state(state)
    with pytest.raises(VerificationError, match=message):
        unpack_snapshot(_compressed(pack_state(state)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a zstd frame"),
        (b"\x28\xb5\x2f\xfd", "header is incomplete"),
        (b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip", "not a zstd frame"),
        (zstd.compress(b"nonsense", 1), "array names of the snapshot take"),
        (zstd.compress(b"", 1), "damaged"),
        (zstd.compress(b"1234567", 1), "damaged"),
    ],
)
def test_what_is_no_snapshot_is_refused(data, message):
    with pytest.raises(VerificationError, match=message):
        unpack_snapshot(data)


def test_every_cut_is_noticed():
    data = pack_snapshot(_learned(9).state())
    for length in range(len(data)):
        with pytest.raises(SnapshotError):
            unpack_snapshot(data[:length])


def test_one_frame_and_nothing_after_it():
    data = pack_snapshot(_learned(9).state())
    for more in (b"\x00", data, b"\x50\x2a\x4d\x18\x00\x00\x00\x00"):
        with pytest.raises(VerificationError, match="holds more"):
            unpack_snapshot(data + more)


@pytest.mark.slow
@given(data=st.data())
def test_damage_is_noticed(data):
    packed = bytearray(pack_snapshot(_learned(9).state()))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    try:
        state = unpack_snapshot(bytes(packed))
    except VerificationError:
        return
    # Only bits that mean nothing, such as the descriptor's unused one, may go unnoticed.
    assert pack_state(state) == pack_state(_learned(9).state())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(algorithm=st.sampled_from(sorted(POLICIES)), value=JSON, data=st.data())
def test_any_header_is_read_or_refused(algorithm, value, data):
    state = POLICIES[algorithm]().state()
    header = json.loads(state["meta"].tobytes())
    inside = data.draw(st.sampled_from([header, header["config"]]))
    inside[data.draw(st.sampled_from(sorted(inside)) | st.text(max_size=5))] = value
    changed = {**state, "meta": _json(header)}
    try:
        check_state(changed)
    except VerificationError:
        return
    load_policy(changed)


@pytest.mark.slow
@settings(max_examples=200)
@given(algorithm=st.sampled_from(sorted(POLICIES)), data=st.data())
def test_any_shape_is_read_or_refused(algorithm, data):
    state = POLICIES[algorithm]().state()
    name = data.draw(st.sampled_from(sorted(set(state) - {"meta"})))
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
    changed = {**state, name: np.zeros(shape)}
    try:
        check_state(changed)
    except VerificationError:
        return
    assert load_policy(changed).state()[name].shape == tuple(shape)


def _compressed(plain):
    return zstd.compress(plain, 1)


def _json(value):
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def _edit(state, **entries):
    state["meta"] = _json({**json.loads(state["meta"].tobytes()), **entries})
