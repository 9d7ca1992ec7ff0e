"""Descriptions: what is signed beside a snapshot, checked wherever it comes from."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError, VerificationError
from steersman.points.scale_guard import Measures, guard
from steersman.policies import BetaThompson, LinTS
from steersman.registry.description import Description, describe

AT = datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
NAMED = {"tenant": "acme", "skill": "assistant", "point": "route", "version": "0.1.0"}


def _description(**entries):
    policy = LinTS(["a", "b"], dim=2)
    policy.learn([1.0, 0.0], "a", 0.5)
    return describe(policy.state(), **{**NAMED, "created_at": AT, **entries})


def test_what_the_state_says_is_read_from_it():
    found = _description(spec_hash="ab", parents=("0.1.0",), line="0.1.0", line_seq=7)
    assert (found.algorithm, found.actions, found.dim, found.samples) == (
        "lin_ts",
        ("a", "b"),
        2,
        1,
    )
    assert len(found.state_sha256) == 64
    assert guard(Measures.from_json(found.guard), []) == []
    assert found.size is found.sha256 is found.url is found.etag is None
    keyed = describe(BetaThompson(["a"]).state(), **NAMED, created_at=AT, samples=12)
    assert (keyed.dim, keyed.samples) == (None, 12)


def test_it_travels_as_json():
    found = _description(evidence={"ess": 812.5, "delta": [0.01, 0.03]}, git_commit="0" * 40)
    full = replace(found, size=100, sha256="a" * 64, url="https://example.com/x", etag='"1"')
    for one in (found, full):
        plain = one.to_json()
        assert list(plain) == sorted(plain)
        assert Description.from_json(plain) == one
        assert Description.from_json(json.dumps(plain).encode()) == one
    assert Description.from_json({**found.to_json(), "of tomorrow": 1}) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tenant", "../other"),
        ("tenant", "Acme"),
        ("tenant", ""),
        ("tenant", "acme/../x"),
        ("skill", ".."),
        ("skill", "a/b"),
        ("skill", "a\\b"),
        ("skill", "%2e%2e"),
        ("point", "route\n"),
        ("point", "route\x00"),
        ("point", "ｒoute"),
        ("point", "a" * 65),
        ("version", "../0.1.0"),
        ("version", "0.1.0/.."),
        ("version", "latest"),
        ("parents", ("0.1.0", "/etc/passwd")),
        ("line", ".."),
        ("sha256", "../../" + "a" * 58),
        ("state_sha256", "A" * 64),
        ("samples", -1),
        ("size", 2**60),
        ("line_seq", -3),
        ("created_at", datetime(2026, 1, 1)),  # noqa: DTZ001 -- the mistake
    ],
)
def test_names_that_would_leave_their_folder_and_numbers_out_of_range_are_refused(name, value):
    with pytest.raises(VerificationError, match=r"the description"):
        _description(**{name: value})
    plain = {**_description().to_json(), name: value}
    with pytest.raises(VerificationError):
        Description.from_json(plain)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"tenant": "acme", "tenant": "other"}',
        b'{"a": "' + b"x" * (1 << 20) + b'"}',
        b"[" + b"{}," * 300_000 + b"{}]",
    ],
)
def test_json_that_is_no_description_is_refused(data):
    with pytest.raises(VerificationError):
        Description.from_json(data)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
    st.sampled_from(sorted(_description().to_json())),
)
def test_any_entry_of_any_type_is_taken_or_refused(value, name):
    plain = {**_description().to_json(), name: value}
    try:
        found = Description.from_json(plain)
    except VerificationError:
        return
    assert Description.from_json(found.to_json()) == found


def test_an_entry_that_no_description_has_is_a_mistake():
    with pytest.raises(InputError, match="unknown entry of a description"):
        _description(colour="red")


def test_a_state_without_a_header_has_no_description():
    with pytest.raises(VerificationError, match="no header"):
        describe({"sums": np.zeros(2)}, **NAMED, created_at=AT)
