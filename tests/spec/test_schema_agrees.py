"""What editors are told is right is what the loader takes."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from steersman.errors import SpecError
from steersman.spec.loader import loads
from steersman.spec.point import DecisionPoint
from steersman.spec.schema import json_schema

TAKES = jsonschema_rs.validator_for(json_schema()).is_valid

CHOICE: dict[str, Any] = {
    "format": 1,
    "skill": "assistant",
    "decision": "route",
    "description": "",
    "context": {
        "dim": 32,
        "seed": 1,
        "fields": {
            "text": {"type": "text", "ngrams": [3, 4], "words": True, "max_chars": 10},
            "intent": {"type": "category", "missing": "bucket", "weight": 1},
            "score": {"type": "number", "mean": 0.0, "sd": 1.0, "clip": 3, "missing": "flag"},
            "spread": {"type": "number", "scale": "robust", "median": 0.0, "iqr": 1.0},
            "seen": {"type": "vector", "size": 4},
        },
    },
    "actions": {"kind": "choice", "names": ["a", "b"], "open": False, "features": []},
    "policy": {"algorithm": "lin_ts", "prior_var": 1.0, "noise_var": 0.1, "forget": 1.0},
    "explore": "floor",
    "floor": 0.02,
    "fallback": {"rules": [{"when": "score < 0.2", "action": "a"}], "otherwise": "b"},
    "reward": {
        "terms": {"success": {"weight": 1.0, "low": 0, "high": 1, "missing": None}},
        "window_s": 60,
        "missing": {"value": 0.5},
    },
    "learning": {"mode": "online", "bucket_s": 10},
    "gates": {"min_effective_sample_size": 100, "min_value": None},
    "rollout": {
        "stages": [{"name": "shadow", "share": 0, "min_units": 1}, {"name": "live", "share": 0.9}],
        "guardrails": [{"outcome": "late", "above": 900, "margin": 0.03, "action": "hold"}],
        "objective": {"kind": "non_inferior", "margin": 0.1},
        "error_budget": {"objective": 0.99},
    },
    "budgets": {"cost_usd_per_day": None, "deadline_ms": 50},
    "privacy": {"scrub": ["email", "custom:abc"], "with": "hash", "fields": ["text"]},
}
MIXED = CHOICE | {
    "actions": {
        "kind": "mixed",
        "parts": {
            "form": {"type": "categorical", "values": ["a", "b"]},
            "k": {"type": "integer", "low": 1, "high": 4},
            "on": {"type": "boolean"},
            "share": {"type": "real", "low": 0.0, "high": 1.0, "points": 3, "scale": "linear"},
        },
        "barred": [{"k": 3, "on": True}],
    },
    "policy": {"algorithm": "factored_ts", "contextual": True},
    "fallback": {"rules": [], "otherwise": {"form": "a", "k": 1, "on": False, "share": 0.5}},
}
SEQUENCE = CHOICE | {
    "actions": {"kind": "sequence", "max_steps": 3, "features": ["f"], "vector": 2},
    "policy": {"algorithm": "sequence_linear", "start": {"f": 1.0}, "leading": 3},
    "fallback": {"otherwise": "first"},
}
PRIOR = CHOICE | {"policy": {"algorithm": "beta_thompson", "prior": [1, 1], "key": "intent"}}
RIGHT = [CHOICE, MIXED, SEQUENCE, PRIOR]
NAMES = ["x", "1a", "", "é", "a b", "a\n", "n" * 64, "n" * 65, "x" * 200, "x" * 201, "custom:é"]
NAMES += ["a\u200b", "\u202ea", " a", "a ", " ", "e\u0301", "a.b/c:d e"]
ODD = st.one_of(
    st.sampled_from([None, True, False, "drop", "first", "email", [], {}, ["a", "a"], {"k": 1}]),
    st.sampled_from(NAMES),
    st.sampled_from([0, 1, -1, 64, 10**9, 10**30, 2**63, 2**63 + 1]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.sampled_from([1, "a", "a b", 0.5, None]), max_size=3),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, "a", None, {}]), max_size=2),
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return every place of a document but the top."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    )
    return [deep for key, one in inner for deep in [(*path, key), *places(one, (*path, key))]]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Return a right document with one place changed, taken away or called otherwise."""
    document = copy.deepcopy(draw(st.sampled_from(RIGHT)))
    path = draw(st.sampled_from(places(document)))
    here: Any = document
    for part in path[:-1]:
        here = here[part]
    how = draw(st.sampled_from(["change", "change", "remove", "rename"]))
    if how == "change":
        here[path[-1]] = draw(ODD)
        return document
    gone = here.pop(path[-1])
    if how == "rename" and isinstance(here, dict):
        here[draw(st.sampled_from(NAMES))] = gone
    return document


def test_what_is_right_is_right_for_both() -> None:
    for document in RIGHT:
        assert TAKES(document)
        DecisionPoint.model_validate(document)


@pytest.mark.slow
@given(documents())
@example(CHOICE | {"format": True})
@example(CHOICE | {"context": {"fields": {"my field": {"type": "txt"}}}, "privacy": {}})
@example(CHOICE | {"actions": {"kind": "choice", "names": ["a", "b", "a\u200b"]}})
@example(CHOICE | {"actions": {"kind": "choice", "names": ["a", "b", " "]}})
@example(CHOICE | {"reward": {"terms": {"1st": {"weight": 1.0}}}})
def test_schema_and_loader_take_the_same(document: dict[str, Any]) -> None:
    kinds: set[str] = set()
    try:
        DecisionPoint.model_validate(document)
    except ValidationError as refused:
        kinds = {problem["type"] for problem in refused.errors()}
    # A schema cannot tell 64.0 from 64, nor compare one field with another.
    assume("int_type" not in kinds)
    if kinds != {"declared"}:
        assert TAKES(document) == (not kinds)


def test_no_truth_is_a_version() -> None:
    with pytest.raises(SpecError, match="<string>:1: format: unknown choice; got True; allowed 1"):
        loads("format: true\n")


@pytest.mark.parametrize("names", [["a", "b", "a"], ["b", "a", "b", "c"]])
def test_both_want_each_name_once(names):
    for document in (
        CHOICE | {"actions": {"kind": "choice", "names": names}},
        CHOICE | {"privacy": {"scrub": ["email"], "fields": ["text", "text"]}},
    ):
        assert not TAKES(document)
        with pytest.raises(ValidationError):
            DecisionPoint.model_validate(document)
