"""Versions are decided by what changed, and never given twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.registry.versions import Ingredients, Version, change_between, next_version
from steersman.spec.loader import loads

TEXT = """
format: 1
skill: assistant
decision: route
context: {fields: {length: {type: number, scale: none, clip: 5}}}
actions: {kind: choice, names: [micro, planner]}
policy: {algorithm: lin_ucb, alpha: 0.5}
floor: 0.02
fallback: {otherwise: planner}
reward: {terms: {success: {weight: 1.0}}}
"""
BASE = Ingredients("lin_ts", {"dim": 64, "noise_var": 0.1}, "0.1.0")
WIDER = Ingredients("lin_ts", {"dim": 128, "noise_var": 0.1})
OTHER = Ingredients("lin_ucb", {"dim": 64, "noise_var": 0.1})


@pytest.mark.parametrize(
    ("before", "after", "taken", "expected"),
    [
        (None, BASE, [], "0.1.0"),
        (None, BASE, ["0.1.0", "0.1.5"], "0.2.0"),
        (BASE, BASE, ["0.1.0"], "0.1.1"),
        (BASE, BASE, ["0.1.0", "0.1.1", "0.1.2", "0.2.0"], "0.1.3"),
        (BASE, WIDER, ["0.1.0"], "0.2.0"),
        (BASE, WIDER, ["0.1.0", "0.2.0", "0.9.0", "0.10.0"], "0.3.0"),
        (BASE, WIDER, ["0.1.0", "0.2.0", "0.3.0"], "0.4.0"),
        (BASE, OTHER, ["0.1.0"], "1.0.0"),
        (BASE, OTHER, ["0.1.0", "1.0.0"], "2.0.0"),
        (Ingredients("lin_ts"), Ingredients("lin_ts"), ["0.1.0", "0.10.2"], "0.10.3"),
        (Ingredients("lin_ts"), Ingredients("lin_ts"), [], "0.0.1"),
    ],
)
def test_the_next_version(before, after, taken, expected):
    assert next_version(before, after, taken) == expected


def test_a_state_relearned_from_a_changed_log_is_at_least_minor():
    assert next_version(BASE, BASE, ["0.1.0"], least="minor") == "0.2.0"
    assert next_version(BASE, OTHER, ["0.1.0"], least="minor") == "1.0.0"


@given(
    taken=st.sets(st.builds("{}.{}.{}".format, *[st.integers(0, 3)] * 3)),
    after=st.sampled_from([BASE, WIDER, OTHER]),
    first=st.booleans(),
)
def test_no_version_is_given_twice(taken, after, first):
    found = next_version(None if first else BASE, after, taken)
    assert found not in taken
    if not first:
        assert Version.of(found) > Version.of("0.1.0")


def test_what_a_spec_declares_decides():
    spec = loads(TEXT)
    before = Ingredients.of(spec, "0.1.0")
    for old, new, change in [
        ("success: {weight: 1.0}", "success: {weight: 2.0}", "patch"),
        ("alpha: 0.5", "alpha: 0.7", "minor"),
        ("floor: 0.02", "floor: 0.05", "minor"),
        ("[micro, planner]", "[micro, planner, ask]", "minor"),
        ("clip: 5", "clip: 4", "minor"),
        ("lin_ucb, alpha: 0.5", "lin_ts", "major"),
    ]:
        assert change_between(before, Ingredients.of(loads(TEXT.replace(old, new)))) == change


@pytest.mark.parametrize(
    "text",
    ["", "1.0", "v1.0.0", "1.0.0-rc1", "01.0.0", "1.0.0\n", "1.0.1234567890", "../0.1.0", "١.0.0"],
)
def test_what_is_no_version_is_refused(text):
    with pytest.raises(InputError, match="invalid version"):
        Version.of(text)


def test_versions_have_the_order_of_their_numbers():
    texts = ["0.9.0", "0.10.0", "1.0.0", "0.10.11", "0.10.9"]
    assert [str(v) for v in sorted(map(Version.of, texts))] == [
        "0.9.0",
        "0.10.0",
        "0.10.9",
        "0.10.11",
        "1.0.0",
    ]
