"""How mistakes are told: what was meant, and keys of the document that may hold anything."""

import re

import pytest

from steersman.errors import SpecError
from steersman.spec import base
from steersman.spec.loader import loads

RIGHT = """\
format: 1
skill: assistant
decision: route
description: Where to send a request.
context:
  dim: 64
  fields:
    text: {type: text}
actions: {kind: choice, names: [micro, planner]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback:
  rules: []
  otherwise: planner
reward:
  terms: {success: {weight: 2.0}}
"""


def test_what_was_probably_meant_is_sought_for_the_first_mistakes_alone(monkeypatch):
    """Among a thousand names it takes a thirtieth of a second for each."""
    sought = []
    monkeypatch.setattr(base, "get_close_matches", lambda *names, **_: sought.append(names) or [])
    names = ", ".join(f"texts{i}" for i in range(300))
    with pytest.raises(SpecError) as refused:
        loads(RIGHT + f"privacy: {{scrub: [email], fields: [{names}]}}\n")
    assert len(sought) == 100
    assert str(refused.value).splitlines()[-1] == "<string>: and 200 more; correct these first"
    sought.clear()
    with pytest.raises(SpecError):
        loads(RIGHT + "".join(f"a{i}: 1\n" for i in range(300)))
    assert len(sought) == 100


def test_what_was_probably_meant_is_told_with_each_of_the_first():
    names = ", ".join(f"texts{i}" for i in range(100))
    with pytest.raises(SpecError) as refused:
        loads(RIGHT + f"privacy: {{scrub: [email], fields: [{names}]}}\n")
    assert str(refused.value).count("; did you mean text?") == 100


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (r'"a\nroute.yaml:1: floor: right"', r"context.fields.a\nroute.yaml:1: floor: right: "),
        (r'"\e[31mred"', r"context.fields.\x1b[31mred: "),
        (r'"\u202eevil"', r"context.fields.\u202eevil: "),
        ('"né à"', "context.fields.né à: "),
        ("x" * 100, f"context.fields.{'x' * 77}...: "),
    ],
)
def test_keys_forge_no_lines_and_tell_terminals_nothing(key, shown):
    with pytest.raises(SpecError) as refused:
        loads(RIGHT.replace("    text:", f"    {key}:", 1), source="route.yaml")
    (told,) = [line for line in str(refused.value).split("\n") if line.startswith("route.yaml:8")]
    assert told.startswith(f"route.yaml:8: {shown}not a valid name; ")
    assert len(str(refused.value).splitlines()) == str(refused.value).count("route.yaml:") - (
        "route.yaml" in key
    )


def test_keys_that_look_like_the_tags_of_unions_are_keys():
    """`#parts` and `[key]` are what the validator calls places of its own."""
    for key in ("#x", "#parts", "#name", "[key]"):
        text = RIGHT.replace("type: text}", "type: category,\n      wrds: 1}", 1)
        with pytest.raises(SpecError) as refused:
            loads(text.replace("    text:", f'    "{key}":', 1), source="route.yaml")
        lines = str(refused.value).splitlines()
        assert f"route.yaml:8: context.fields.{key}: not a valid name; " in "\n".join(lines)
        assert any(
            line.startswith(f"route.yaml:9: context.fields.{key}.wrds: unknown field; got 1; ")
            and "allowed type, weight, missing; " in line
            for line in lines
        ), lines
        loaded = RIGHT.replace("otherwise: planner", f'otherwise: {{\n    "{key}": 3}}')
        with pytest.raises(SpecError) as refused:
            loads(loaded, source="route.yaml")
        assert f"route.yaml:15: fallback.otherwise.{key}: not a valid name; " in str(refused.value)
        both = RIGHT.replace("otherwise: planner", f'otherwise: {{k: [1], "{key}": 3}}')
        with pytest.raises(SpecError, match=r":14: fallback.otherwise.k.bool: wrong type; got"):
            loads(both)
        with pytest.raises(SpecError, match=rf":5: context.{re.escape(key)}: unknown field"):
            loads(RIGHT.replace("context:", f'context: {{"{key}": 1}}\nold:', 1))
