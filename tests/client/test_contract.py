"""The client's messages, ids and JSON limits against those of the service."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman import wire
from steersman.wire import messages as served
from steersman_client import messages, strict_json

SHARED = sorted(
    name
    for name, kind in vars(messages).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
)
CONFIG = ("frozen", "omit_defaults", "forbid_unknown_fields", "tag", "array_like")
FULL = {
    "decision_id": "0199c5a0-0000-7000-8000-000000000000", "action": "a", "propensity": 0.5,
    "distribution": {"a": 0.5}, "snapshot": "s", "update_seq": 7, "stage": "ab", "arm": "control",
    "logged": "unknown", "degraded": False, "record": "r", "parts": {"k": 1}, "picked": ["a"],
    "steps": [{"eligible": ["a"], "action": "a", "p": 1.0}], "event_id": "e", "episode_id": "c",
    "type": "task_result", "schema_version": 1, "at": 1.0, "outcomes": {"good": True},
    "action_taken": "b", "body": {"x": None}, "skill": "mail", "decision": "tone",
    "context": {"n": 1}, "eligible": ["a"], "features": {"a": [1.0]}, "links": {"a": ["b"]},
    "parent_id": "0199c5a0-0000-7000-8000-000000000001", "unit": "u", "deadline_ms": 5.0,
    "idempotency_key": "i", "id": "e", "status": "refused", "problem": {"status": 404},
    "code": "not_found", "title": "t", "detail": "d", "field": "f", "retry_after_s": 1.0, "p": 1.0,
}  # fmt: skip


def both(name):
    return getattr(messages, name), getattr(wire, name)


def without_words(schema):
    """Return a JSON schema without its descriptions: each side words its own."""
    if isinstance(schema, dict):
        return {k: without_words(v) for k, v in schema.items() if k != "description"}
    return [without_words(one) for one in schema] if isinstance(schema, list) else schema


def test_messages_are_the_ones_that_the_client_needs():
    assert [
        *("DecideRequest", "Decision", "Event", "EventResult", "LocalDecision", "Problem", "Step")
    ] == SHARED


@pytest.mark.parametrize("name", SHARED)
def test_fields_types_and_defaults_are_equal(name):
    ours, theirs = both(name)
    assert ours.__struct_fields__ == theirs.__struct_fields__
    assert repr(ours.__struct_defaults__) == repr(theirs.__struct_defaults__)
    for option in CONFIG:
        assert getattr(ours.__struct_config__, option) == getattr(theirs.__struct_config__, option)
    assert without_words(msgspec.json.schema(ours)) == without_words(msgspec.json.schema(theirs))


@pytest.mark.parametrize("name", SHARED)
def test_messages_with_all_fields_have_equal_bytes(name):
    ours, theirs = both(name)
    found = {field: FULL[field] for field in ours.__struct_fields__ if field in FULL}
    if name == "Problem":
        found["status"] = 404
    sent = messages.write(msgspec.convert(found, ours))
    assert sent == wire.write(msgspec.convert(found, theirs))
    assert msgspec.json.decode(sent, type=theirs) == msgspec.convert(found, theirs)


def test_limits_types_and_names_are_equal():
    assert messages.OLDEST_S == wire.OLDEST_S
    assert messages.EventType == served.EventType
    picked = ["a", 'b"ü']
    assert messages.selection_name(picked) == wire.selection_name(picked)
    ids = [messages.new_id() for _ in range(100)]
    assert {one.version for one in ids} == {7}
    assert len(set(ids)) == 100
    assert abs(wire.id_time(ids[0]) - wire.id_time(wire.new_id())) < 5.0


@pytest.mark.parametrize("wrong", [{"event_id": "my id"}, {"event_id": "e", "outcomes": {"n": ""}}])
def test_errors_have_equal_words(wrong):
    said = []
    for side in (messages, wire):
        with pytest.raises(msgspec.ValidationError) as raised:
            msgspec.convert(wrong, side.Event)
        said.append(side.in_plain_words(raised.value))
    assert said[0] == said[1]


def refusals(body, **options):
    said = []
    for read, kind in ((strict_json.read, ValueError), (wire.read, wire.Refused)):
        try:
            said.append(("read", read(body, **(options if read is wire.read else {}))))
        except kind as error:
            said.append(("refused", str(error)))
    return said


NESTED = [b"[" * deep + b"]" * deep for deep in (31, 32, 33, 34)]
NESTED += [b'{"a":' * deep + b"1" + b"}" * deep for deep in (31, 32, 33)]
WIDE = b"[" + b",".join([b'{"a":[1]}'] * 100_001) + b"]"


@pytest.mark.parametrize(
    "body",
    [
        *NESTED,
        WIDE,
        b"[" + b",".join([b"[]"] * 199_999) + b"]",
        b'{"a":1,"a":2}',
        b'{"a:":1,"b":":"}',
        b'[{"a":1},{"a":1,"b":{"c":1,"c":1}}]',
        b'{"n":18446744073709551615}',
        b'{"n":18446744073709551616}',
        b'{"n":-9223372036854775809}',
        b'{"a":"x\\u0000"}',
        b'{"\\u0000":1}',
        b'{"a":"\\\\u0000"}',
    ],
)
def test_the_same_bodies_are_refused_with_the_same_words(body):
    ours, theirs = refusals(body, max_bytes=16 << 20)
    assert ours == theirs


def test_a_large_body_is_refused_by_both(monkeypatch):
    monkeypatch.setattr(strict_json, "_MOST_BYTES", 10)
    ours, theirs = refusals(b'"0123456789"', max_bytes=10)
    assert ours == theirs
    assert ours[0] == "refused"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=40,
)  # fmt: skip


@given(VALUES)
def test_any_json_is_read_alike(value):
    # As a client sends it: its encoder escapes no colon.
    ours, theirs = refusals(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    assert ours == theirs
