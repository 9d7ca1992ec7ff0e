"""Rules that can never work are refused where they are declared; the others are left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError, SpecError
from steersman.spec.expressions import compile_rule
from steersman.spec.loader import loads
from steersman.spec.rule_kinds import never_works

KINDS = {"intent": "text", "body": "text", "score": "number", "gap": "number", "seen": "vector"}
TEXT = """\
format: 1
skill: assistant
decision: route
context:
  fields:
    intent: {{type: category}}
    body: {{type: text}}
    score: {{type: number, mean: 0, sd: 1}}
    gap: {{type: number, mean: 0, sd: 1}}
    seen: {{type: vector, size: 2}}
actions: {{kind: choice, names: [a, b]}}
policy: {policy}
floor: 0.02
fallback:
  rules:
    - {{when: {when}, action: a}}
  otherwise: b
reward: {{terms: {{success: {{weight: 1.0}}}}}}
"""


def declared(when, policy="{algorithm: lin_ucb}"):
    return TEXT.format(when="'" + when.replace("'", "''") + "'", policy=policy)


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("1/0 < 2", "1 / 0 is a division by zero; .*; allowed any other divisor; change the div"),
        ("score / (2 - 2) > 1", r"score / \(2 - 2\) is a division by zero"),
        ("score < 1 or 1/0 < 2", "1 / 0 is a division by zero"),
        ("-" + "9" * 400 + " < 1", "arithmetic needs numbers up to 1.7e308"),
        (
            "'a' < 3",
            r"'a' \(a text\) cannot be ordered against 3 \(a number\); .*; compare values of",
        ),
        ("1 < 2 < 'a'", r"2 \(a number\) cannot be ordered against 'a'"),
        ("(score < 1) < 2", r"score < 1 \(true or false\) cannot be ordered against 2"),
        ("3", r"3 \(a number\) is not true or false; .*; allowed a condition .*; add a comparison"),
        ("'a'", r"'a' \(a text\) is not true or false"),
        ("[1, 2]", r"\[1, 2\] \(a list\) is not true or false"),
        ("not 3", r"3 \(a number\) is not true or false"),
        ("3 in 4", r"3 \(a number\) is never in 4 \(a number\)"),
        ("-'a' < 1", r"'a' \(a text\) is not a number; .*; allowed numbers on both sides"),
        ("True + 1 > 1", r"True \(true or false\) is not a number"),
        ("'a' == 3", r"'a' \(a text\) never equals 3 \(a number\)"),
        # By what the context declares.
        ("intent < 3", r"intent \(a text\) cannot be ordered against 3 \(a number\)"),
        ("score >= intent", r"score \(a number\) cannot be ordered against intent \(a text\)"),
        (
            "intent == 3",
            r"intent \(a text\) never equals 3 .*; use a value of the field's type, texts",
        ),
        ("score != 'high'", r"score \(a number\) never equals 'high' \(a text\)"),
        ("intent in [1, 2]", r"intent \(a text\) is never in \[1, 2\]"),
        ("score not in ['a']", r"score \(a number\) is never in \['a'\]"),
        ("score in body", r"score \(a number\) is never in body \(a text\)"),
        ("score", r"score \(a number\) is not true or false"),
        ("intent and score < 1", r"intent \(a text\) is not true or false"),
        ("score + body > 1", r"body \(a text\) is not a number"),
        ("seen == [0.0, 0.0]", r"seen \(a vector\) never equals \[0.0, 0.0\] \(a list\)"),
        ("[0.0] != seen", r"\[0.0\] \(a list\) never equals seen \(a vector\)"),
        ("seen == seen", r"seen \(a vector\) never equals seen"),
        ("seen == 1", r"seen \(a vector\) never equals 1 \(a number\)"),
        ("seen in []", r"seen \(a vector\) is never in \[\]"),
        ("seen in seen", r"seen \(a vector\) is never in seen"),
        ("seen < 1", r"seen \(a vector\) cannot be ordered against 1"),
    ],
)
def test_what_can_never_work_is_refused_at_its_place(when, message):
    with pytest.raises(
        SpecError, match=rf"^p.yaml:16: fallback.rules\[0\].when: .*{message}"
    ) as refused:
        loads(declared(when), source="p.yaml")
    assert "; got " in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    policy = f"{{algorithm: rules, rules: [{{when: {when!r}, action: a}}], otherwise: b}}"
    with pytest.raises(SpecError, match=r"p.yaml:12: policy.rules\[0\].when: "):
        loads(declared("True", policy), source="p.yaml")


@pytest.mark.parametrize(
    "when",
    [
        "True",
        "1 < 2",
        "score < 0.5 and intent in ['faq', 'chat']",
        "intent in ['faq', 3]",
        "intent in []",
        "intent == body",
        "'help' in body and intent < 'm'",
        "score == True",
        "0.5 in seen",
        "(score < 1) == (gap < 1)",
        "score / gap > 1",
        "gap != 0 and score / gap > 1",
        "-(-3) < +score",
        "not (score < 0.1 or intent == 'faq')",
    ],
)
def test_what_may_work_is_taken(when):
    assert loads(declared(when)).fallback.rules[0].when == when


def test_a_rule_that_is_too_long_says_how_long_and_what_to_do():
    with pytest.raises(SpecError) as refused:
        loads(declared("score < 1" + " or score < 1" * 60))
    assert str(refused.value).endswith("...; allowed at most 500 characters; split it")
    assert "fallback.rules[0].when: rule has 789 characters; got 'score" in str(refused.value)
    with pytest.raises(SpecError, match=r"and literals; correct the condition$"):
        loads(declared("score <"))
    with pytest.raises(SpecError, match=r"; allowed: .* and literals; correct the condition$"):
        compile_rule("'; allowed x' <")


def test_a_division_by_zero_says_what_to_do():
    with pytest.raises(InputError, match=r"division by zero; allowed: any other .*; compare the"):
        compile_rule("score / gap > 1")({"score": 1.0, "gap": 0})


ATOMS = st.sampled_from(["1", "0", "'a'", "True", "intent", "score", "gap", "[1, 'a']", "['b']"])


def parts(*operators):
    return st.recursive(
        ATOMS,
        lambda inner: (
            st.tuples(inner, st.sampled_from(operators), inner).map(
                lambda three: "({} {} {})".format(*three)
            )
            | inner.map(lambda one: f"(not {one})")
            | inner.map(lambda one: f"(-{one})")
        ),
        max_leaves=6,
    )


@given(parts("<", ">=", "+", "/"), st.sampled_from(["", "a"]), st.floats(-2, 2), st.integers(-1, 1))
def test_where_nothing_is_skipped_a_refused_rule_always_fails(text, intent, score, gap):
    rule = compile_rule(text)
    if never_works(text, KINDS) is not None:
        with pytest.raises(InputError):
            rule({"intent": intent, "score": score, "gap": gap})


@given(parts("<", "==", "!=", "in", "not in", "and", "or", "*"))
def test_less_is_refused_where_less_is_known(text):
    compile_rule(text)
    assert never_works(text) is None or never_works(text, KINDS) is not None
