"""What a declaration may say about personal data, and that saying nothing changes nothing."""

import re

import pytest

from steersman.errors import SpecError
from steersman.spec.loader import loads
from steersman.spec.point import DecisionPoint
from steersman.spec.privacy import Privacy
from steersman.spec.schema import json_schema

POINT = """
format: 1
skill: support
decision: route
context: {fields: {text: {type: text}, subject: {type: text}, intent: {type: category}}}
actions: {kind: choice, names: [micro, planner]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {otherwise: planner}
reward: {terms: {success: {weight: 1.0}}}
"""


def with_privacy(written: str) -> DecisionPoint:
    return loads(f"{POINT}privacy: {written}\n")


def test_nothing_is_scrubbed_unless_it_is_declared():
    assert loads(POINT).privacy == Privacy()
    assert loads(POINT).privacy.scrub == ()


def test_the_hash_changes_only_where_something_is_scrubbed():
    before = loads(POINT).spec_hash
    assert with_privacy("{}").spec_hash == before
    assert with_privacy("{scrub: [], with: mask, fields: null}").spec_hash == before
    hashes = {
        with_privacy(written).spec_hash
        for written in (
            "{scrub: [email]}",
            "{scrub: [email, phone]}",
            "{scrub: [email], with: hash}",
            "{scrub: [email], fields: [text]}",
        )
    }
    assert len(hashes | {before}) == 5


def test_a_declaration_survives_its_own_dump():
    point = with_privacy("{scrub: [email, 'custom:names'], with: hash, fields: [text]}")
    assert DecisionPoint.model_validate(point.model_dump()) == point
    assert DecisionPoint.model_validate_json(point.model_dump_json()) == point


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{scrub: [emial]}", "privacy.scrub[0]: unknown kind; got 'emial'; allowed email, phone, "),
        ("{scrub: [emial]}", "did you mean email?"),
        ("{scrub: ['custom:a b']}", "privacy.scrub[0]: unknown kind"),
        ("{scrub: ['custom:']}", "privacy.scrub[0]: unknown kind"),
        ("{scrub: [ip, ip]}", "privacy.scrub[1]: named twice; got 'ip'"),
        ("{scrub: [ip], fields: [text, text]}", "privacy.fields[1]: named twice"),
        ("{scrub: [ip], fields: [intent]}", "privacy.fields[0]: not a text field of the context"),
        ("{scrub: [ip], fields: [txet]}", "allowed text, subject; did you mean text?"),
        ("{scrub: [ip], with: forget}", "privacy.with: unknown choice; got 'forget'"),
        ("{scrub: [ip], how: mask}", "privacy.how: unknown field"),
        (
            "{with: hash}",
            "privacy.scrub: with: hash is set but scrub is empty; got []; allowed email, phone, ",
        ),
        ("{fields: [text]}", "privacy.scrub: fields is set but scrub is empty"),
    ],
)
def test_mistakes_are_told(written, told):
    with pytest.raises(SpecError, match=re.escape(told)):
        with_privacy(written)


def test_editors_are_told_the_kinds():
    pattern = json_schema()["$defs"]["Privacy"]["properties"]["scrub"]["items"]["pattern"]
    assert re.fullmatch(pattern, "card")
    assert re.fullmatch(pattern, "custom:names")
    assert not re.fullmatch(pattern, "custom")
