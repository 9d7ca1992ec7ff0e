"""JSON Schemas of the wire messages, generated from the message types and their docstrings.

The four event types are published one by one, with a version, because programs in any language
produce them: ``/schemas/events/v1/<type>.json``.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.wire import (
    EVENT_TYPES,
    BatchRequest,
    DecideRequest,
    Event,
    EventBatch,
    EventResult,
    LocalDecision,
    Problem,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from steersman.api.route import Route
    from steersman.wire import EventType

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EVENT_VERSION = 1
_REFS = "#/components/schemas/{name}"
_BATCHES = (BatchRequest, DecideRequest, Event, EventBatch, EventResult, LocalDecision, Problem)
_DECISION = "019a3b5e-7c00-7d2a-8f00-5b1a2c3d4e5f"
EVENT_EXAMPLES: Mapping[EventType, dict[str, Any]] = {
    "interaction.create": {
        "event_id": "draft-17:shown",
        "decision_id": _DECISION,
        "type": "interaction.create",
        "at": 1767225600.0,
        "body": {"channel": "email"},
    },
    "interaction.output": {
        "event_id": "draft-17:output",
        "decision_id": _DECISION,
        "type": "interaction.output",
        "outcomes": {"latency_ms": 412.5, "cost_usd": 0.0004},
        "body": {"characters": 812},
    },
    "feedback.submit": {
        "event_id": "draft-17:feedback",
        "decision_id": _DECISION,
        "type": "feedback.submit",
        "outcomes": {"edit_distance": 0.12, "accepted": True},
    },
    "task_result": {
        "event_id": "session-4:sent",
        "episode_id": "session-4",
        "type": "task_result",
        "outcomes": {"sent": 1},
    },
}


def components(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the schema of every message of these routes by name, for ``#/components/schemas``."""
    kinds = [kind for route in routes for kind in _kinds([route.answer, route.body])]
    _, found = msgspec.json.schema_components((*_BATCHES, *kinds), ref_template=_REFS)
    schemas = {name: _described(schema) for name, schema in sorted(found.items())}
    # Items are checked one by one, so that a bad item does not refuse the others. So the message
    # type does not contain the type of the items.
    _properties(schemas, "BatchRequest")["requests"]["items"] = shape(DecideRequest)
    _properties(schemas, "EventBatch")["events"]["items"] = shape(Event)
    records = _properties(schemas, "EventBatch")["records"]
    records["items"] = {"anyOf": [{"type": "string"}, shape(LocalDecision)]}
    _properties(schemas, "EventResult")["problem"] = {
        "anyOf": [shape(Problem), {"type": "null"}],
        "description": "Problem, as in an error answer.",
    }
    schemas["Event"]["oneOf"] = _about_one_thing()
    return schemas


def _kinds(kind: Any) -> Iterator[Any]:
    """Yield the message types within a type of a `Route`."""
    if isinstance(kind, dict):
        kind = [*kind.values()]
    if isinstance(kind, tuple | list):
        for one in kind:
            yield from _kinds(one)
    elif kind is not None:
        yield kind


def shape(kind: Any) -> dict[str, Any]:
    """Return the schema of a type of a `Route`.

    >>> shape({"ready": bool})["properties"]
    {'ready': {'type': 'boolean'}}
    >>> shape((Problem, [int, str]))["anyOf"][1]["items"]
    {'anyOf': [{'type': 'integer'}, {'type': 'string'}]}
    """
    if kind == {}:
        return {"type": "object"}
    if isinstance(kind, dict):
        properties = {name: shape(one) for name, one in kind.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(kind, list):
        return {"type": "array", "items": shape(tuple(kind))}
    if isinstance(kind, tuple):
        return {"anyOf": [shape(one) for one in kind]}
    (schema,), _ = msgspec.json.schema_components((kind,), ref_template=_REFS)
    return schema


def query_parameters(kind: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
    """Yield the OpenAPI description of each query parameter."""
    _, found = msgspec.json.schema_components((kind,))
    schema = _described(found[kind.__name__])
    for name, inner in schema["properties"].items():
        about = inner.pop("description", "")
        described = {"name": name, "in": "query", "description": about, "schema": inner}
        yield {**described, "required": True} if name in schema["required"] else described


def event_schema(kind: EventType) -> dict[str, Any]:
    """Return the published schema of an event type: JSON Schema, draft 2020-12, with examples.

    >>> event_schema("task_result")["properties"]["type"]["const"]
    'task_result'
    """
    schema = _described(msgspec.json.schema_components((Event,))[1]["Event"])
    about = schema["properties"]["type"]["description"]
    schema["properties"]["type"] = {"const": kind, "description": about}
    return {
        "$schema": DIALECT,
        "$id": f"/schemas/events/v{EVENT_VERSION}/{kind}.json",
        **schema,
        "title": kind,
        "oneOf": _about_one_thing(),
        "examples": [EVENT_EXAMPLES[kind]],
    }


def event_schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of every event type by file name.

    >>> sorted(event_schemas())[0]
    'feedback.submit.json'
    """
    return {f"{kind}.json": event_schema(kind) for kind in EVENT_TYPES}


def _about_one_thing() -> list[dict[str, Any]]:
    one: dict[str, Any] = {"properties": {"decision_id": {"type": "string"}}}
    other: dict[str, Any] = {"properties": {"episode_id": {"type": "string"}}}
    return [
        {"required": ["decision_id"], **one, "not": {"required": ["episode_id"], **other}},
        {"required": ["episode_id"], **other, "not": {"required": ["decision_id"], **one}},
    ]


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the docstring split into descriptions of its properties."""
    text = cleandoc(schema.get("description", ""))
    summary, _, attributes = text.partition("\n\nAttributes:\n")
    about = {
        name: " ".join(words.split())
        for name, words in re.findall(r"^ {4}(\w+): ((?:.|\n {8})*)", attributes, re.MULTILINE)
    }
    properties = {
        name: {**inner, "description": _sentence(about[name])} if name in about else inner
        for name, inner in schema.get("properties", {}).items()
    }
    described = {**schema, "description": summary}
    return {**described, "properties": properties} if properties else described


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _properties(schemas: dict[str, Any], name: str) -> dict[str, Any]:
    properties: dict[str, Any] = schemas[name]["properties"]
    return properties


def as_text(value: Any) -> bytes:
    r"""Return a value as indented JSON in UTF-8.

    >>> as_text({"a": 1})
    b'{\n  "a": 1\n}\n'
    """
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
