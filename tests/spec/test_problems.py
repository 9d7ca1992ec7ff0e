"""Every mistake is told, at its line, with the value, the range and what to do."""

import pytest

from steersman.errors import SpecError
from steersman.spec.loader import load, loads

RIGHT = """\
format: 1
skill: assistant
decision: route
description: Where to send a request.
context:
  dim: 64
  fields:
    text: {type: text}
    intent: {type: category}
    confidence: {type: number, mean: 0.5, sd: 0.2}
    meaning: {type: vector, size: 8}
actions: {kind: choice, names: [micro, planner, deep], open: false}
policy: {algorithm: lin_ucb, alpha: 0.5}
explore: floor
floor: 0.02
fallback:
  rules: [{when: "confidence < 0.2", action: deep}]
  otherwise: planner
reward:
  terms:
    success: {weight: 2.0, low: 0, high: 1}
    latency_ms: {weight: -1.0, low: 0, high: 2000}
  window_s: 600
  missing: drop
rollout:
  stages: [{name: canary, share: 0.05}, {name: live, share: 0.95}]
  guardrails: [{outcome: latency_ms, above: 900, margin: 0.01}]
budgets: {deadline_ms: 50}
"""

# (what stands there, what is written instead, line, field, part of the message)
MISTAKES = [
    ("format: 1", "format: 2", 1, "format", "got 2; allowed 1"),
    ("format: 1", "format: '1'", 1, "format", "got '1'"),
    ("skill: assistant", "skil: assistant", 2, "skil", "did you mean skill?"),
    ("skill: assistant", "skill: my skill", 2, "skill", "not a valid name"),
    ("skill: assistant", "skill: 3", 2, "skill", "allowed text"),
    ("skill: assistant", "skill:", 2, "skill", "got None"),
    ("  dim: 64", "  dim: 7", 6, "context.dim", "allowed 8 or more"),
    ("  dim: 64", "  dim: 5000", 6, "context.dim", "allowed 4096 or less"),
    ("  dim: 64", "  dim: 64.0", 6, "context.dim", "allowed a whole number"),
    ("  dim: 64", "  dim: true", 6, "context.dim", "allowed a whole number"),
    ("type: text", "type: txt", 8, "context.fields.text.type", "'text', 'category', 'number'"),
    ("{type: text}", "{words: true}", 8, "context.fields.text.type", "required field is missing"),
    ("{type: text}", "[1]", 8, "context.fields.text", "allowed a mapping"),
    ("type: text", "type: text, words: yes", 8, "context.fields.text.words", "true or false"),
    ("type: text", "type: text, wrds: true", 8, "context.fields.text.wrds", "did you mean words?"),
    ("type: text", "type: text, ngrams: [0]", 8, "context.fields.text.ngrams[0]", "1 or more"),
    ("type: text", "type: text, ngrams: [3, 4, 3]", 8, "context.fields.text.ngrams[2]", "twice"),
    ("type: text", "type: text, ngrams: 3", 8, "context.fields.text.ngrams", "allowed a list"),
    (
        "type: text",
        "type: text, words: false, ngrams: []",
        8,
        "context.fields.text.ngrams",
        "needs words or n-grams",
    ),
    ("type: text", "type: text, weight: 0", 8, "context.fields.text.weight", "above 0"),
    ("type: category", "type: category, category: x", 9, "context.fields.intent.category", "unkno"),
    (
        "type: category",
        "type: category, missing: empty",
        9,
        "context.fields.intent.missing",
        "buck",
    ),
    (", sd: 0.2", "", 10, "context.fields.confidence.mean", "mean without sd"),
    ("mean: 0.5, ", "", 10, "context.fields.confidence.sd", "sd without mean"),
    ("sd: 0.2", "sd: -1", 10, "context.fields.confidence.sd", "got -1; allowed above 0"),
    ("sd: 0.2", "sd: 0", 10, "context.fields.confidence.sd", "above 0"),
    ("sd: 0.2", "sd: .nan", 10, "context.fields.confidence.sd", "finite"),
    ("mean: 0.5", "mean: -.inf", 10, "context.fields.confidence.mean", "finite"),
    ("mean: 0.5", "mean: '0.5'", 10, "context.fields.confidence.mean", "allowed a number"),
    ("mean: 0.5", "mean: true", 10, "context.fields.confidence.mean", "allowed a number"),
    ("sd: 0.2", "sd: 0.2, scale: robust", 10, "context.fields.confidence.mean", "belong to scale"),
    ("sd: 0.2", "sd: 0.2, clip: 0", 10, "context.fields.confidence.clip", "above 0"),
    ("size: 8", "size: 0", 11, "context.fields.meaning.size", "1 or more"),
    (", size: 8", "", 11, "context.fields.meaning.size", "required field is missing"),
    ("deep], o", "deep, micro], o", 12, "actions.names[3]", "named twice; got 'micro'"),
    ("deep], o", "deep, 3], o", 12, "actions.names[3]", "got 3; allowed text"),
    ("deep], o", "deep, ''], o", 12, "actions.names[3]", "printable"),
    ("open: false", "features: [f, f]", 12, "actions.features[1]", "named twice"),
    (
        "open: false",
        "features: [f]",
        12,
        "actions.features",
        "lin_ucb does not use features of actions",
    ),
    ("open: false", "open: true", 12, "actions.open", "lin_ucb accepts only named actions"),
    ("[micro, planner, deep]", "[]", 12, "actions.names", "no actions"),
    ("kind: choice", "kind: choices", 12, "actions.kind", "'choice', 'mixed', 'sequence'"),
    ("lin_ucb", "linucb", 13, "policy.algorithm", "'lin_ucb'"),
    ("alpha: 0.5", "alpha: -1", 13, "policy.alpha", "0.0 or more"),
    ("alpha: 0.5", "beta: 1", 13, "policy.beta", "allowed algorithm, alpha, ridge, forget"),
    (
        "lin_ucb, alpha: 0.5",
        "beta_thompson, prior: [1]",
        13,
        "policy.prior[1]",
        "required field is missing",
    ),
    ("lin_ucb, alpha: 0.5", "beta_thompson, prior: [0, 1]", 13, "policy.prior[0]", "0.001 or more"),
    ("lin_ucb, alpha: 0.5", "beta_thompson, key: inten", 13, "policy.key", "did you mean intent?"),
    ("lin_ucb, alpha: 0.5", "beta_thompson, key: text", 13, "policy.key", "not a category"),
    ("lin_ucb, alpha: 0.5", "lin_ts, prior_var: 1.0e-10", 13, "policy.prior_var", "1e-09 or more"),
    (
        "lin_ucb, alpha: 0.5",
        "lin_ts, prior_var: 1.0e+6, noise_var: 1.0e-7",
        13,
        "policy.prior_var",
        "1e+12 times noise_var (1e-07); got 1000000.0; allowed up to 100000; raise noise_var",
    ),
    ("lin_ucb, alpha: 0.5", "lin_ts, noise_var: 0", 13, "policy.noise_var", "got 0; allowed 1e-09"),
    ("lin_ucb, alpha: 0.5", "fixed, action: macro", 13, "policy.action", "did you mean micro?"),
    (
        "lin_ucb, alpha: 0.5",
        "rules, rules: [{when: 'conf < 1', action: deep}], otherwise: deep",
        13,
        "policy.rules[0].when",
        "unknown context field conf",
    ),
    ("explore: floor", "explore: never", 14, "explore", "'floor' or 'none'"),
    ("floor: 0.02", "floor: 1", 15, "floor", "below 1.0"),
    ("floor: 0.02", "floor: -0.1", 15, "floor", "0.0 or more"),
    ("floor: 0.02", "floor: 0", 15, "floor", "or explore: none"),
    ("floor: 0.02", "floor: 5e-324", 15, "floor", "got 5e-324; allowed 1e-06 to below 1, or 0"),
    ("floor: 0.02", "floor: 9.9e-7", 15, "floor", "lost in rounding"),
    ("explore: floor", "explore: none", 15, "floor", "when explore is none"),
    ("confidence < 0.2", "confidence <", 17, "fallback.rules[0].when", "column 13"),
    ("confidence < 0.2", "open(1)", 17, "fallback.rules[0].when", "Call is not part"),
    ("confidence < 0.2", "a < 0.2", 17, "fallback.rules[0].when", "unknown context field a"),
    ("action: deep}]", "action: dep}]", 17, "fallback.rules[0].action", "did you mean deep?"),
    ("otherwise: planner", "otherwise: first", 18, "fallback.otherwise", "micro, planner, deep"),
    ("otherwise: planner", "otherwise: {k: 3}", 18, "fallback.otherwise", "unknown action"),
    ("weight: 2.0", "weight: 0", 21, "reward.terms.success.weight", "has no effect"),
    ("weight: 2.0", "weight: -9e-7", 21, "reward.terms.success.weight", "or 1e-06 to 1e6"),
    ("weight: 2.0", "weight: 1e300", 21, "reward.terms.success.weight", "1000000.0 or less"),
    ("weight: 2.0, ", "", 21, "reward.terms.success.weight", "required field is missing"),
    ("high: 1}", "high: 0}", 21, "reward.terms.success.low", "low is not below high"),
    ("high: 1}", "high: .inf}", 21, "reward.terms.success.high", "finite"),
    (
        "low: 0, high: 1}",
        "low: -1.0e308, high: 1.0e308}",
        21,
        "reward.terms.success.high",
        "not a finite",
    ),
    ("window_s: 600", "window_s: 0", 23, "reward.window_s", "above 0"),
    ("missing: drop", "missing: zero", 24, "reward.missing", "'drop'"),
    ("missing: drop", "missing: {value: 2}", 24, "reward.missing.value", "1.0 or less"),
    ("missing: drop", "missing: {valu: 0}", 24, "reward.missing.valu", "did you mean value?"),
    ("missing: drop", "missing: 0", 24, "reward.missing", "allowed a mapping"),
    (
        "canary, share: 0.05",
        "shadow, share: 0.05",
        26,
        "rollout.stages[0].share",
        "serves no units",
    ),
    ("share: 0.95", "share: 0.01", 26, "rollout.stages[1].share", "allowed 0.5 to 1"),
    (
        "live, share: 0.95",
        "ab, share: 0.01",
        26,
        "rollout.stages[1].share",
        "less than the share 0.05",
    ),
    (
        "live, share: 0.95",
        "canary, share: 0.1",
        26,
        "rollout.stages[1].name",
        "canary after canary",
    ),
    (
        "canary, share: 0.05",
        "canary, share: 0.11",
        26,
        "rollout.stages[0].share",
        "serves few units",
    ),
    ("canary, share: 0.05", "canary, share: 0", 26, "rollout.stages[0].share", "above 0 to 0.1"),
    ("share: 0.05", "share: 1e-7", 26, "rollout.stages[0].share", "share is too small"),
    ("rollout:", "rollout:\n  alpha: 1e-17", 26, "rollout.alpha", "1e-09 or more"),
    ("share: 0.95", "share: 1, min_units: 3", 26, "rollout.stages[1].min_units", "held back"),
    ("canary, share: 0.05", "ab, share: 0.6", 26, "rollout.stages[0].share", "the same size"),
    (", above: 900", "", 27, "rollout.guardrails[0].above", "exactly one"),
    ("above: 900", "above: 900, below: 3", 27, "rollout.guardrails[0].above", "exactly one"),
    ("above: 900", "better: lower, low: 1", 27, "rollout.guardrails[0].high", "not above low"),
    (
        "above: 900",
        "better: lower, low: -1e308, high: 1e308",
        27,
        "rollout.guardrails[0].high",
        "high - low is not a finite number",
    ),
    (
        "above: 900",
        "above: 900, low: 5",
        27,
        "rollout.guardrails[0].low",
        "is only used with better",
    ),
    (
        "above: 900",
        "above: 900, high: 2000",
        27,
        "rollout.guardrails[0].high",
        "high is only used with better; got 2000; allowed 1.0 without better; remove it, or",
    ),
    (
        "outcome: latency_ms, above: 900",
        "metric: reward, high: 2",
        27,
        "rollout.guardrails[0].high",
        "is only used with better",
    ),
    ("outcome: latency_ms", "metric: errors", 27, "rollout.guardrails[0].metric", "no target"),
    ("outcome: latency_ms, ", "", 27, "rollout.guardrails[0].outcome", "one of outcome and metric"),
    ("margin: 0.01", "tolerate: 0.04", 27, "rollout.guardrails[0].tolerate", "0 to the margin"),
    (
        "  guardrails: ",
        "  objective: {margin: 0.1}\n  guardrails: ",
        27,
        "rollout.objective.margin",
        "with superior",
    ),
    ("deadline_ms: 50", "deadline_ms: 0", 28, "budgets.deadline_ms", "above 0"),
    ("budgets: {", "learning: {bucket_s: 1e-7}\nbudgets: {", 28, "learning.bucket_s", "1e-06 or"),
    ("budgets: {deadline_ms: 50}", "budgets: 3", 28, "budgets", "allowed a mapping"),
    ("decision: route", "skill: again", 3, "skill", "duplicate key 'skill', first on line 2"),
]


def test_the_right_one_is_right():
    assert loads(RIGHT).decision == "route"


@pytest.mark.parametrize(("old", "new", "line", "field", "message"), MISTAKES)
def test_each_mistake_is_told_at_its_place(old, new, line, field, message):
    assert RIGHT.count(old) >= 1
    with pytest.raises(SpecError) as refused:
        loads(RIGHT.replace(old, new, 1), source="route.yaml")
    lines = str(refused.value).splitlines()
    told = [text for text in lines if text.startswith(f"route.yaml:{line}: {field}: ")]
    assert len(told) == 1, lines
    assert message in told[0]


@pytest.mark.parametrize(
    ("part", "field", "message"),
    [
        ("k: {type: integer, low: 32, high: 3}", "actions.parts.k.low", "below 3"),
        ("k: {type: integer, low: 1.5, high: 3}", "actions.parts.k.low", "whole number"),
        ("w: {type: real, low: 0, high: 1, points: 1}", "actions.parts.w.points", "2 or more"),
        ("w: {type: real, low: 1, high: 1}", "actions.parts.w.low", "not below"),
        ("v: {type: categorical, values: [a]}", "actions.parts.v.values", "2 or more"),
        ("v: {type: categorical, values: [a, a]}", "actions.parts.v.values[1]", "named twice"),
        ("r: {type: boolean, low: 1}", "actions.parts.r.low", "unknown field"),
        ("k: {type: integer, low: 3, high: 32}", "fallback.otherwise", "no value for part k"),
        ("x: {type: integer, low: 3, high: 32}", "fallback.otherwise.x", "got 40; allowed 3 to 32"),
        ("x: {type: boolean}", "fallback.otherwise.x", "true or false"),
        ("y: {type: boolean}", "fallback.otherwise.x", "unknown part"),
    ],
)
def test_mistakes_in_mixed_actions(part, field, message):
    text = f"""
format: 1
skill: rag
decision: retrieval
actions:
  kind: mixed
  parts: {{ {part} }}
policy: {{algorithm: lin_ucb}}
explore: none
fallback: {{otherwise: {{x: 40}}}}
reward: {{terms: {{quality: {{weight: 1.0}}}}}}
"""
    with pytest.raises(SpecError) as refused:
        loads(text)
    assert any(
        f": {field}: " in line and message in line for line in str(refused.value).split("\n")
    )


@pytest.mark.slow
def test_joint_policies_need_features_and_open_actions_reserve_first():
    text = RIGHT.replace("lin_ucb, alpha: 0.5", "joint_squarecb, gamma: 10")
    with pytest.raises(SpecError, match=r"policy.algorithm: joint_\w+ needs features"):
        loads(text)
    with pytest.raises(SpecError, match=r"actions.names\[3\]: 'first' means the first eligible"):
        loads(RIGHT.replace("deep], open: false", "deep, first], open: true"))


def test_who_chooses_among_candidates_that_nobody_named():
    unnamed = RIGHT.replace("names: [micro, planner, deep], open: false", "open: true")
    with pytest.raises(SpecError, match=r":13: policy.algorithm: this policy needs named actions"):
        loads(unnamed)
    rules = '  rules: [{when: "confidence < 0.2", action: deep}]\n  otherwise: planner'
    joint = unnamed.replace(rules, "  otherwise: first").replace("true", "true, features: [f]", 1)
    joint = joint.replace("lin_ucb, alpha: 0.5", "joint_lin_ts")
    assert loads(joint).fallback.otherwise == "first"


@pytest.mark.parametrize("policy", ["fixed, action: first", "rules, otherwise: first"])
def test_first_is_for_the_fallback(policy):
    opened = RIGHT.replace("open: false", "open: true, features: [f]")
    joint = opened.replace("lin_ucb, alpha: 0.5", "joint_lin_ts")
    assert loads(joint.replace("otherwise: planner", "otherwise: first")).actions.open
    with pytest.raises(SpecError, match=r"unknown action; got 'first'; allowed micro, planner"):
        loads(opened.replace("lin_ucb, alpha: 0.5", policy))


def test_numbers_that_leave_no_room_for_hashing():
    numbers = "".join(f"    n{i}: {{type: number, missing: flag}}\n" for i in range(3))
    text = RIGHT.replace("dim: 64", "dim: 8").replace("    text:", f"{numbers}    text:", 1)
    with pytest.raises(SpecError, match=r"context.dim: bias and numbers take 8 slots and leave 0"):
        loads(text)


@pytest.mark.slow
def test_all_mistakes_are_told_at_once_in_the_order_of_the_file():
    text = RIGHT
    for old, new in [
        ("skill: assistant", "skill: 3"),
        ("sd: 0.2", "sd: -1"),
        ("deep], o", "deep, deep], o"),
        ("floor: 0.02", "floor: 0"),
        ("otherwise: planner", "otherwise: planer"),
        ("deadline_ms: 50", "deadlin_ms: 50"),
    ]:
        text = text.replace(old, new, 1)
    with pytest.raises(SpecError) as refused:
        loads(text, source="route.yaml")
    places = [line.split(": ")[0] for line in str(refused.value).splitlines()]
    # A fallback is compared with the actions once the actions are right.
    assert places == [f"route.yaml:{line}" for line in (2, 10, 12, 15, 28)]
    with pytest.raises(SpecError) as refused:
        loads(text.replace("deep, deep]", "deep]"), source="route.yaml")
    assert "route.yaml:18: fallback.otherwise: unknown action" in str(refused.value)


def test_no_section_at_all():
    with pytest.raises(SpecError) as refused:
        loads("a: 1")
    message = str(refused.value)
    for name in ("format", "skill", "decision", "actions", "policy", "fallback", "reward"):
        assert f":1: {name}: required field is missing; allowed a value; add it" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "dim", "most"),
    [
        ("lin_ts", 512, 253),
        ("lin_ucb", 4096, 3),
        ("kernel_ucb, random_features: 512", 512, 63),
        ("epsilon_greedy, contextual: true", 1024, 63),
        ("epsilon_greedy", 4096, 5000),
        ("beta_thompson", 4096, 5000),
    ],
)
def test_what_is_learned_fits_into_a_snapshot(policy, dim, most):
    text = RIGHT.replace("lin_ucb, alpha: 0.5", policy).replace("dim: 64", f"dim: {dim}")
    for count in (most, most + 1):
        names = ", ".join(["deep", "planner", *(f"a{i}" for i in range(2, count))])
        named = text.replace("micro, planner, deep", names)
        if most in {count, 5000}:
            assert len(loads(named).actions.names) == count
            continue
        with pytest.raises(SpecError, match=rf":6: context.dim: {count} models of .* or {most} m"):
            loads(named)


@pytest.mark.slow
def test_one_model_for_all_fits_into_a_snapshot():
    names = ", ".join(f"f{i}" for i in range(8200))
    text = RIGHT.replace("open: false", f"features: [{names}]")
    with pytest.raises(SpecError, match=r":12: actions.features: 1 models of 8,200 numbers"):
        loads(text.replace("lin_ucb, alpha: 0.5", "joint_lin_ts"))


@pytest.mark.slow
def test_of_very_many_names_a_few_are_listed():
    names = ", ".join(f"tool_{i}" for i in range(5000))
    text = RIGHT.replace("[micro, planner, deep]", f"[{names}]")
    with pytest.raises(SpecError) as refused:
        loads(text, source="route.yaml")
    rule, otherwise = str(refused.value).splitlines()
    assert rule.startswith("route.yaml:17: fallback.rules[0].action: unknown action; got 'deep'; ")
    assert otherwise.endswith("tool_19 and 4,980 more; correct or remove it")


def test_of_very_many_mistakes_the_first_are_told():
    with pytest.raises(SpecError) as refused:
        loads("".join(f"a{i}: 1\n" for i in range(300)))
    lines = str(refused.value).splitlines()
    assert len(lines) == 101
    assert lines[-1].startswith("<string>: and 2")
    assert lines[-1].endswith("more; correct these first")


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty document"),
        ("# nothing\n", "an empty document"),
        ("- a\n", "a list at the top"),
        ("word", "a single value at the top"),
        (BOMB, "anchor or alias is not allowed here; write the value out"),
        ("a: *x", "anchor or alias"),
        ("a: {<<: {b: 1}}", "unknown field"),
        ("a: !!python/object/apply:os.system [ls]", "the tag"),
        ("a: !!str 3", "the tag"),
        ("a: 1\n---\nb: 2", ":2: a second document"),
        ("[" * 5000, "nesting deeper than 32"),
        ("{a: " * 5000, "nesting deeper than 32"),
        ("? [a]\n: b", "a key that is a list or mapping"),
        ("1: a", "key '1' is not text; put it in quotes"),
        ("true: a", "key 'true' is not text"),
        ("a: [1", ":1: not valid YAML"),
        ("a: 'x", "not valid YAML"),
        ("a: b: c", "not valid YAML"),
        ("\ta: b", "not valid YAML"),
        ("a: \x07", "not valid YAML"),
        ("a: " + "x" * (1 << 18), "allowed at most 262,144"),
        ("format: " + "9" * 5000, "format: "),
        ("format: 1e999", "format: "),
        ("a: \ud800", "not valid YAML"),
    ],
    ids=range(24),
)
def test_documents_that_are_no_declaration(text, message):
    with pytest.raises(SpecError) as refused:
        loads(text)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 5000


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "NoneType"),
        (3, "int"),
        (b"format: 1", "bytes"),
        (["format: 1"], "list"),
        ({}, "dict"),
    ],
)
def test_what_is_no_text_and_no_path(value, kind):
    with pytest.raises(SpecError, match=rf"^<string>: the declaration is a {kind}; allowed: YAML"):
        loads(value)
    with pytest.raises(SpecError, match=rf"^the path of a declaration is a {kind}; .* to loads"):
        load(value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SpecError, match="cannot be read: embedded null"):
        load("a\0b")
    with pytest.raises(SpecError, match=r"absent.yaml: cannot be read: No such file"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(SpecError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"format: 1\nskill: caf\xe9\n")
    with pytest.raises(SpecError, match=r"latin.yaml:2: byte 0xe9 is not UTF-8"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (1 << 20))
    with pytest.raises(SpecError, match="more than 262,144 bytes"):
        load(tmp_path / "huge.yaml")
