"""OpenAPI 3.1 document, generated from the types that read and write the bodies."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.api.app import Route
from steersman.api.operations import OPERATIONS, Operation
from steersman.api.schemas import components, event_schemas, ref
from steersman.platform.http.messages import Answer
from steersman.points.systems import load, systems_with
from steersman.wire import CODES, Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from steersman.platform.http.messages import Request

_ALWAYS = ("headers_too_large", "internal", "unavailable")
_KEYED = ("unauthorized", "forbidden")
_WITH_BODY = ("bad_json", "timeout", "too_large", "unsupported_media_type", "invalid")


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document. It is cached: do not change it.

    >>> document()["openapi"], "/v1/decide" in document()["paths"]
    ('3.1.0', True)
    """
    paths: dict[str, dict[str, Any]] = {}
    for operation in (*OPERATIONS, *_of_systems("operations")):
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Steersman",
            "version": "1",
            "description": "Chooses actions, learns from outcomes and explains each decision.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components(tuple(_of_systems("messages"))),
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "API key, `sk_…`; `steersman key create` creates the first.",
                }
            },
        },
    }


def _of_systems(part: str) -> Iterator[Any]:
    for system in systems_with(part).values():
        yield from load(getattr(system, part))


class Descriptions:
    """Handlers of the routes that describe the API.

    >>> [route.path for _, route in Descriptions().routes()]
    ['/openapi.json', '/schemas/events/v1/{file}']
    """

    def __init__(self) -> None:
        self._files = {name: as_text(schema) for name, schema in event_schemas().items()}
        self._document = as_text(document())

    def routes(self) -> Sequence[tuple[str, Route]]:
        """Return the routes."""
        return [
            ("GET", Route("/openapi.json", self.openapi)),
            ("GET", Route("/schemas/events/v1/{file}", self.schema)),
        ]

    async def openapi(self, _: Request) -> Answer:
        """Answer ``GET /openapi.json``."""
        return Answer(200, self._document)

    async def schema(self, request: Request) -> Answer:
        """Answer ``GET /schemas/events/v1/{file}``."""
        text = self._files.get(request.params[0])
        if text is None:
            raise Refused.of("not_found", f"schema not found; available: {', '.join(self._files)}")
        return Answer(200, text, ((b"content-type", b"application/schema+json"),))


def _operation(operation: Operation) -> dict[str, Any]:
    answer = operation.answer if isinstance(operation.answer, dict) else ref(operation.answer)
    good = {
        "description": "Done.",
        "content": {operation.media: {"schema": answer}},
        "headers": {"X-Request-Id": {"schema": {"type": "string"}}},
    }
    described: dict[str, Any] = {
        "operationId": f"{operation.method}{operation.path.translate(_IDENTIFIER)}",
        "summary": operation.summary,
        "responses": {str(operation.status): good, **_problems(operation)},
        "security": [{"key": []}] if operation.scope else [],
    }
    if operation.scope:
        described["description"] = f"Requires the scope `{operation.scope}`."
    if parameters := list(_parameters(operation)):
        described["parameters"] = parameters
    if operation.body is not None:
        content: dict[str, Any] = {"schema": operation.body}
        content["examples"] = {name: {"value": it} for name, it in operation.examples.items()}
        described["requestBody"] = {"required": True, "content": {"application/json": content}}
    return described


_IDENTIFIER = str.maketrans({"/": "_", ".": "_", "-": "_", "{": None, "}": None})


_PARTS: dict[str, dict[str, Any]] = {
    "id": {"type": "string", "format": "uuid"},
    "file": {"type": "string", "enum": sorted(event_schemas())},
}


def _parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for part in operation.path.split("/"):
        if part.startswith("{"):
            name = part.strip("{}")
            yield {"name": name, "in": "path", "required": True, "schema": _PARTS[name]}
    for name, about in operation.query:
        schema = {"type": "boolean", "default": False}
        yield {"name": name, "in": "query", "description": about, "schema": schema}


def _problems(operation: Operation) -> dict[str, Any]:
    """Return the error answers that an operation can give, by status."""
    codes = [*_ALWAYS, *operation.codes]
    codes += _KEYED if operation.scope else ()
    codes += _WITH_BODY if operation.body is not None else ()
    codes += ("invalid",) if operation.query else ()
    found: dict[str, Any] = {}
    for code in sorted(set(codes), key=lambda code: CODES[code]):
        status, title = CODES[code]
        example = {
            "value": Problem.of(
                code, f"{title.lower()}: what is wrong, the value, what is allowed, what to do next"
            )
        }
        described = found.setdefault(
            str(status),
            {
                "description": title + ".",
                "content": {"application/problem+json": {"schema": ref("Problem"), "examples": {}}},
            },
        )
        described["content"]["application/problem+json"]["examples"][code] = example
        if status in {503, 429}:
            described["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return found


def as_text(value: Any) -> bytes:
    r"""Return a value as indented JSON in UTF-8.

    >>> as_text({"a": 1})
    b'{\n  "a": 1\n}\n'
    """
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


OPENAPI_FILE = "docs/reference/openapi.json"
EVENTS_FOLDER = "configs/schemas/events/v1"


def publish(root: Path) -> list[Path]:
    """Write the published files of a checkout and return those that changed."""
    changed = []
    for path, text in published(root):
        if not path.exists() or path.read_bytes() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            changed.append(path)
    return changed


def published(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each published file of a checkout with its expected content."""
    yield root / OPENAPI_FILE, as_text(document())
    for name, schema in event_schemas().items():
        yield root / EVENTS_FOLDER / name, as_text(schema)


if __name__ == "__main__":
    for file in publish(Path(sys.argv[1])):
        sys.stdout.write(f"wrote {file}\n")
