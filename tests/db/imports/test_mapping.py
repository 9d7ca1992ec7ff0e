"""Mapping errors have file, line and field."""

from __future__ import annotations

import pytest

from steersman.errors import SpecError

WRONG = {
    "unknown field": ({"contxt": "{}"}, "contxt: unknown field"),
    "no action": ({"action": None}, "action: required field is missing"),
    "trust of zero": ({"trust": "0"}, "trust: too small"),
    "trust above one": ({"trust": "1.5"}, "trust: too large"),
    "two propensities": (
        {"propensity": "{field: p, constant: 0.5}"},
        "exactly one source of propensities",
    ),
    "no propensity in it": ({"propensity": "{}"}, "exactly one source of propensities"),
    "constant of zero": ({"propensity": "{constant: 0}"}, "propensity.constant: too small"),
    "unknown time format": ({"time": "{field: at, format: julian}"}, "unknown time format"),
    "unknown zone": ({"time": "{field: at, timezone: Mars/Base}"}, "unknown time zone"),
    "unknown kind": ({"rows": "xml"}, "rows: unknown choice"),
    "unknown part": ({"action": "{feild: chosen}"}, "action.feild: unknown field"),
    "unknown point": ({"decision": "width"}, "decision point not declared"),
    "unknown context": ({"context": "{wrods: words}"}, "did you mean words?"),
    "features without any": ({"features": "f"}, "the policy uses no action features"),
    "not YAML": ({"where": "[}"}, "not valid YAML"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_mapping_is_told(logs, name):
    await logs.declare()
    changes, reason = WRONG[name]
    with pytest.raises(SpecError) as caught:
        await logs.load(logs.lines(logs.row()), logs.mapping(**changes))
    assert reason in str(caught.value)
    assert "mapping.yaml:" in str(caught.value)
    assert await logs.rows("SELECT id FROM decision") == []


async def test_all_problems_are_told_at_once(logs):
    await logs.declare()
    mapping = logs.mapping(trust="7", decision="9", outcomes="{clicked: {field: 3}}")
    with pytest.raises(SpecError) as caught:
        await logs.load(logs.lines(), mapping)
    assert len(str(caught.value).splitlines()) == 3


async def test_open_candidates_need_their_list(logs):
    await logs.declare("""
format: 1
skill: search
decision: depth
context: {fields: {words: {type: number, mean: 0, sd: 1}, language: {type: category}}}
actions: {kind: choice, open: true, features: [score]}
policy: {algorithm: joint_lin_ts}
floor: 0.05
fallback: {rules: [], otherwise: first}
reward: {terms: {clicked: {weight: 1}}}
""")
    with pytest.raises(SpecError) as caught:
        await logs.load(logs.lines(), logs.mapping())
    assert "an open choice needs the candidates of each row" in str(caught.value)
    assert "learns from features" in str(caught.value)


async def test_a_mapping_that_is_not_there_is_told(logs, tmp_path):
    await logs.declare()
    with pytest.raises(SpecError, match="cannot be read"):
        await logs.load(logs.lines(), tmp_path / "absent.yaml")


async def test_outcomes_that_no_term_uses_are_named(logs):
    await logs.declare()
    report = await logs.load(logs.lines(logs.row()), logs.mapping(outcomes="{clikced: clicked}"))
    assert report.unused == ("clikced",)
