"""JSON Schemas of the wire messages, generated from the message types and their docstrings.

The four event types are published one by one, with a version, because programs in any language
produce them: ``/schemas/events/v1/<type>.json``.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.api.routes.explain import Explanation
from steersman.api.routes.keys import NewKey, Rotation, ShownKey
from steersman.api.routes.rollout_plans import NewForecast, ShownForecast
from steersman.api.routes.rollouts import (
    NewRollout,
    RolloutAct,
    ShownIncident,
    ShownRollout,
    ShownVerdict,
)
from steersman.api.routes.search import (
    DocumentRequest,
    SearchAnswer,
    SearchRequest,
    ShownDocument,
)
from steersman.api.routes.snapshots import RetractedSnapshot, RetractSnapshot, ShownSnapshot
from steersman.api.routes.status import Status
from steersman.api.routes.units import ErasedRows, EraseRequest, UnitRequest
from steersman.wire import (
    EVENT_TYPES,
    BatchRequest,
    DecideRequest,
    Decision,
    Event,
    EventBatch,
    EventResult,
    LocalDecision,
    Problem,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.wire import EventType

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EVENT_VERSION = 1
_TYPES = (
    BatchRequest,
    DecideRequest,
    Decision,
    DocumentRequest,
    EraseRequest,
    ErasedRows,
    Event,
    EventBatch,
    EventResult,
    Explanation,
    LocalDecision,
    NewForecast,
    NewKey,
    NewRollout,
    Problem,
    RetractSnapshot,
    RetractedSnapshot,
    RolloutAct,
    Rotation,
    SearchAnswer,
    SearchRequest,
    ShownDocument,
    ShownForecast,
    ShownIncident,
    ShownKey,
    ShownRollout,
    ShownSnapshot,
    ShownVerdict,
    Status,
    UnitRequest,
)
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


def components(more: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Return the schema of every message by name, for ``#/components/schemas``.

    >>> components()["SearchHit"]["properties"]["doc_id"]["description"]
    'Document id.'
    """
    _, found = msgspec.json.schema_components(
        (*_TYPES, *more), ref_template="#/components/schemas/{name}"
    )
    schemas = {name: _described(schema) for name, schema in sorted(found.items())}
    # Items are checked one by one, so that one bad item does not refuse the others.
    _properties(schemas, "BatchRequest")["requests"]["items"] = ref("DecideRequest")
    _properties(schemas, "EventBatch")["events"]["items"] = ref("Event")
    records = _properties(schemas, "EventBatch")["records"]
    records["items"] = {"anyOf": [{"type": "string"}, ref("LocalDecision")]}
    _properties(schemas, "EventResult")["problem"] = {
        "anyOf": [ref("Problem"), {"type": "null"}],
        "description": "Problem, as in an error answer.",
    }
    schemas["Event"]["oneOf"] = _about_one_thing()
    return schemas


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
        name: " ".join(told.split())
        for name, told in re.findall(r"^ {4}(\w+): ((?:.|\n {8})*)", attributes, re.MULTILINE)
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


def ref(name: str) -> dict[str, str]:
    """Return a reference to a schema of `components`.

    >>> ref("Problem")
    {'$ref': '#/components/schemas/Problem'}
    """
    return {"$ref": f"#/components/schemas/{name}"}
