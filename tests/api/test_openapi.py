"""The interface is described as it is: every route, every status, files up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from steersman.api.openapi import document, published
from steersman.api.schemas import EVENT_EXAMPLES, event_schema
from steersman.wire import EVENT_TYPES

ROOT = Path(__file__).parents[2]


def test_the_published_files_are_up_to_date() -> None:
    for path, text in published(ROOT):
        fix = "run `python -m steersman.api.openapi .`"
        assert path.read_bytes() == text, f"{path} is out of date; {fix}"


async def test_what_is_served_is_what_is_published(serving) -> None:
    async with serving() as s:
        served = {"docs/reference/openapi.json": "/openapi.json"}
        served |= {
            f"configs/schemas/events/v1/{kind}.json": f"/schemas/events/v1/{kind}.json"
            for kind in EVENT_TYPES
        }
        files = {str(path.relative_to(ROOT)): text for path, text in published(ROOT)}
        assert set(files) == set(served)
        for file, path in served.items():
            answer = await s.ask("GET", path, key=None)
            assert answer.status == 200
            assert answer.body == json.loads(files[file])
        assert (await s.ask("GET", "/schemas/events/v1/none.json", key=None)).status == 404
        assert (await s.ask("GET", "/schemas/events/v1/..%2F..%2Fx", key=None)).status == 404


async def test_every_route_is_described_and_every_description_is_a_route(serving) -> None:
    async with serving() as s:
        routes = {(method.lower(), path) for method, path in s.service.app.paths()}
        described = {
            (method, path) for path, methods in document()["paths"].items() for method in methods
        }
        assert routes == described


def test_every_reference_leads_somewhere_and_every_schema_is_valid() -> None:
    schemas = document()["components"]["schemas"]
    text = json.dumps(document(), default=lambda value: value.title)
    for reference in set(re.findall(r'"\$ref": "(.*?)"', text)):
        assert reference.removeprefix("#/components/schemas/") in schemas
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_property_says_what_it_is() -> None:
    for name, schema in document()["components"]["schemas"].items():
        for place, inner in schema.get("properties", {}).items():
            assert inner.get("description"), f"{name}.{place}"


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_event_schemas_take_their_examples_and_no_nonsense(kind) -> None:
    check = jsonschema.Draft202012Validator(event_schema(kind))
    assert check.is_valid(EVENT_EXAMPLES[kind])
    for wrong in nonsense(kind):
        assert not check.is_valid(wrong), wrong


def nonsense(kind) -> list[dict[str, object]]:
    """Return events that are wrong in one way each."""
    example = EVENT_EXAMPLES[kind]
    target = next(name for name in ("decision_id", "episode_id") if name in example)
    other = {"decision_id": "episode_id", "episode_id": "decision_id"}[target]
    return [
        {**example, "more": 1},
        {**example, "type": "other"},
        {**example, "event_id": ""},
        {**example, "event_id": "two words"},
        {**example, other: "0190a"},
        {name: value for name, value in example.items() if name != target},
        {**example, "outcomes": {"x": "text"}},
        {**example, "schema_version": 2},
    ]


@pytest.mark.parametrize("kind", EVENT_TYPES)
async def test_the_service_refuses_what_the_event_schemas_refuse(serving, kind) -> None:
    async with serving() as s:
        for wrong in nonsense(kind):
            answer = await s.ask("POST", f"/v1/{kind}", wrong)
            assert (answer.status, answer.body["code"]) == (422, "invalid"), wrong


async def test_examples_are_taken(serving) -> None:
    """A new key is refused for an id that does not exist, not for its form."""
    async with serving() as s:
        for kind in EVENT_TYPES:
            answer = await s.ask("POST", f"/v1/{kind}", EVENT_EXAMPLES[kind])
            assert answer.status == 404, answer
        batch = {"events": list(EVENT_EXAMPLES.values())}
        answer = await s.ask("POST", "/v1/events", batch)
        assert {r["problem"]["code"] for r in answer.body["results"]} == {"not_found"}
