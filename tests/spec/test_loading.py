"""A right declaration loads as written; what it means has a stable hash."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from steersman.errors import SpecError
from steersman.spec import loader
from steersman.spec.actions import Choice, Mixed, Sequence
from steersman.spec.context import Context, NumberField
from steersman.spec.document import parse
from steersman.spec.loader import load, loads
from steersman.spec.point import DecisionPoint
from steersman.spec.policy import LinUCBPolicy
from steersman.spec.rollout import Stage

CONFIGS = Path(__file__).parents[2] / "configs"
# Read by what they belong to, and tested there.
OTHERS = {"pipelines/assistant", "interrogator/questions", "interrogator/rl", "rl/policy.defaults"}
POINTS = [
    path
    for path in sorted(CONFIGS.rglob("*.yaml"))
    if f"{path.parent.name}/{path.stem}" not in OTHERS
]

ROUTE = """
format: 1
skill: assistant
decision: route
context:
  fields:
    text: {type: text}
    intent: {type: category}
    confidence: {type: number, mean: 0.5, sd: 0.2}
actions: {kind: choice, names: [micro, planner]}
policy: {algorithm: lin_ucb, alpha: 0.5}
floor: 0.02
fallback: {rules: [{when: "confidence < 0.2", action: planner}], otherwise: micro}
reward: {terms: {success: {weight: 1.0}}}
"""

MIXED = """
format: 1
skill: rag
decision: retrieval
actions:
  kind: mixed
  parts:
    variant: {type: categorical, values: [bm25, dense]}
    k: {type: integer, low: 3, high: 32}
    rerank: {type: categorical, values: [off, on]}
    stop: {type: boolean}
    w: {type: real, low: 0, high: 1}
policy: {algorithm: fixed, action: {variant: dense, k: 8, rerank: off, stop: true, w: 0.5}}
explore: none
fallback: {otherwise: {variant: bm25, k: 3, rerank: on, stop: false, w: 0}}
reward: {terms: {quality: {weight: 1.0}}}
"""


@pytest.mark.parametrize("path", POINTS, ids=lambda path: path.stem)
def test_shipped_declarations_load(path):
    point = load(path)
    assert point.decision == path.stem
    assert point.skill == path.parent.name


def test_everything_written_is_there_and_the_rest_has_defaults():
    point = loads(ROUTE)
    assert point.context.fields["confidence"] == NumberField(type="number", mean=0.5, sd=0.2)
    assert point.actions == Choice(kind="choice", names=("micro", "planner"))
    assert point.policy == LinUCBPolicy(algorithm="lin_ucb", alpha=0.5)
    assert point.context.dim == 64
    assert point.fallback.rules[0].action == "planner"
    assert point.reward.missing == "drop"
    assert point.rollout.stages[0] == Stage(name="shadow", share=0.0, min_units=100)
    assert point.gates.max_weight_share == 0.05


def test_mixed_actions_and_texts_that_look_like_switches():
    point = loads(MIXED)
    assert isinstance(point.actions, Mixed)
    assert point.actions.parts["rerank"].values == ("off", "on")
    assert point.actions.parts["w"].points == 21
    assert point.fallback.otherwise["rerank"] == "on"


def test_sequences_fall_back_on_the_first_candidate():
    text = ROUTE.replace(
        "{kind: choice, names: [micro, planner]}",
        "{kind: sequence, max_steps: 5, candidates: 100, stop: true}",
    )
    text = text.replace("action: planner", "action: first").replace(
        "otherwise: micro", "otherwise: first"
    )
    text = text.replace("{algorithm: lin_ucb, alpha: 0.5}", "{algorithm: sequence_linear}")
    assert isinstance(loads(text).actions, Sequence)


SELECT = """
format: 1
skill: evidence
decision: select
actions: {kind: sequence, max_steps: 5, features: [score], vector: 2}
policy: {algorithm: sequence_linear, start: {score: 0.5, linked: 0.1}}
floor: 0.1
fallback: {otherwise: first}
reward: {terms: {success: {weight: 1.0}}}
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("sequence_linear, start", "lin_ts, start", "start"),
        ("sequence_linear, start: {score: 0.5, linked: 0.1}", "fixed, action: first", "fixed"),
        ("linked: 0.1", "linkd: 0.1", "did you mean linked"),
        ("features: [score]", "features: [score, hop]", "every sequence has this column"),
        ("otherwise: first", "otherwise: best", "unknown action"),
        ("sequence_linear", "sequence_trees", "learning.mode"),
        ("kind: sequence, max_steps: 5, features", "kind: choice, open: true, features", "vector"),
        ("floor: 0.1", "floor: 0", "are never tried"),
        ("max_steps: 5,", "max_steps: 5, candidates: 4001,", "20,005 candidates"),
        ("sequence_linear,", "sequence_linear, leading: 401,", "2,005 candidates"),
        ("sequence_linear,", "sequence_linear, temperature: 1.0e-7,", "policy.temperature"),
        ("sequence_linear,", "sequence_linear, prior_var: 1.0e-10,", "policy.prior_var"),
        ("sequence_linear,", "sequence_linear, noise_var: 1.0e+10,", "policy.noise_var"),
    ],
)
def test_what_does_not_fit_a_sequence_is_told(before, after, message):
    assert loads(SELECT).policy.start == {"score": 0.5, "linked": 0.1}
    assert before in SELECT
    with pytest.raises(SpecError, match=message):
        loads(SELECT.replace(before, after))


def test_the_largest_sequences_are_taken():
    wide = SELECT.replace("max_steps: 5,", "max_steps: 2, candidates: 10000,")
    assert loads(wide.replace("linear,", "linear, leading: 1000,")).actions.candidates == 10_000


def test_trees_are_declared_frozen():
    frozen = SELECT.replace("sequence_linear", "sequence_trees") + "learning: {mode: frozen}\n"
    assert loads(frozen).policy.algorithm == "sequence_trees"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("off", "off"),
        ("Yes", "Yes"),
        ("'true'", "true"),
        ("2020-01-01", "2020-01-01"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("0x", "0x"),
        ('"\\u00e9"', "é"),
        ('"\\ud83d\\ude00"', "😀"),  # as JSON writes it
    ],
)
def test_texts_are_texts(written, read):
    point = loads(ROUTE.replace("[micro, planner]", f"[micro, planner, {written}]"))
    assert point.actions.names[2] == read


@pytest.mark.parametrize(
    ("written", "read"), [("0.5", 0.5), (".5", 0.5), ("5e-1", 0.5), ("1", 1.0), ("+1.", 1.0)]
)
def test_numbers_are_numbers(written, read):
    assert loads(ROUTE.replace("alpha: 0.5", f"alpha: {written}")).policy.alpha == read


@pytest.mark.parametrize(("written", "read"), [("7", 7), ("0o17", 15), ("0x1F", 31)])
def test_whole_numbers_in_three_bases(written, read):
    assert loads(ROUTE.replace("context:\n", f"context:\n  seed: {written}\n")).context.seed == read


def test_hash_is_of_the_meaning():
    point = loads(ROUTE)
    assert point.spec_hash == loads("# a comment\n" + ROUTE.replace("0.02", "2.0e-2")).spec_hash
    reordered = ROUTE.replace("    text: {type: text}\n", "").replace(
        "    intent: {type: category}\n", "    intent: {type: category}\n    text: {type: text}\n"
    )
    assert reordered != ROUTE
    assert point.spec_hash == loads(reordered).spec_hash
    assert point.spec_hash == loads(ROUTE + "explore: floor\n").spec_hash
    assert point.spec_hash != loads(ROUTE.replace("0.02", "0.03")).spec_hash


def test_hash_is_known():
    assert loads(ROUTE).spec_hash == (
        "931553707a026d5d2fa895fa8f05211bac3994114ba96b416eabd9f0baa6c4d5"
    )


def test_a_declaration_survives_its_own_dump():
    for text in (ROUTE, MIXED):
        point = loads(text)
        again = DecisionPoint.model_validate(point.model_dump())
        assert again == point
        assert DecisionPoint.model_validate_json(point.model_dump_json()) == point
        assert again.spec_hash == point.spec_hash


def test_parts_are_frozen():
    point = loads(ROUTE)
    with pytest.raises(ValidationError, match="frozen"):
        point.floor = 0.5


def test_parts_check_themselves_without_yaml():
    with pytest.raises(ValueError, match="mean without sd"):
        Context.model_validate({"fields": {"a": {"type": "number", "mean": 1.0}}})


def test_a_file_with_byte_order_mark_loads(tmp_path):
    file = tmp_path / "route.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + ROUTE.encode())
    assert load(str(file)) == loads(ROUTE)


@pytest.mark.slow
@given(text=st.text(alphabet=st.sampled_from("ab: {}[]-,&*!#|>'\"\n\t1.~?%@`\\é\x00"), max_size=60))
def test_any_text_is_refused_as_a_spec_error(text):
    with pytest.raises(SpecError):
        loads(text)


def test_what_is_loaded_again_is_the_same_and_nobody_elses():
    first = loads(ROUTE)
    first.reward.terms.clear()
    again = loads(ROUTE)
    assert again.reward.terms
    assert again == loads(ROUTE + "\n")  # read anew
    with pytest.raises(SpecError, match=r"^other:"):
        loads("format: 2", source="other")


def test_short_declarations_are_read_once_and_long_ones_are_not_kept(monkeypatch):
    texts = []
    monkeypatch.setattr(
        loader, "parse", lambda text, source: texts.append(text) or parse(text, source)
    )
    short, long = ROUTE + "# short\n", ROUTE + "# " + "x" * 20_000
    for text in (short, short, long, long):
        loads(text)
    assert texts == [short, long, long]


def test_a_copy_with_other_values_keeps_nothing_that_was_worked_out_of_the_old_ones():
    read, fresh = loads(ROUTE), loads(ROUTE)
    assert read.spec_hash == fresh.spec_hash
    wider = read.model_copy(update={"floor": 0.1})
    assert wider.spec_hash == fresh.model_copy(update={"floor": 0.1}).spec_hash != read.spec_hash
    assert read.model_copy(deep=True).spec_hash == read.spec_hash
    assert wider == fresh.model_copy(update={"floor": 0.1})
