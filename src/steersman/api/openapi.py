"""OpenAPI 3.1 document, made from the route table."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.api.schemas import as_text, components, event_schemas, query_parameters, shape
from steersman.api.table import every_route
from steersman.wire import CODES, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.api.route import Route

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
    routes = [route for route in every_route() if not route.hidden]
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
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
            "schemas": components(routes),
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "API key, `sk_…`; `steersman key create` creates the first.",
                }
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    method = route.method.lower()
    good = {
        "description": "Done.",
        "content": {route.media: {"schema": shape(route.answer)}},
        "headers": {"X-Request-Id": {"schema": {"type": "string"}}},
    }
    described: dict[str, Any] = {
        "operationId": f"{method}{route.path.translate(_IDENTIFIER)}",
        "summary": route.summary,
        "responses": {str(route.status): good, **_problems(route)},
        "security": [{"key": []}] if route.scope else [],
    }
    if route.scope:
        described["description"] = f"Requires the scope `{route.scope}`."
    if parameters := list(_parameters(route)):
        described["parameters"] = parameters
    if route.body is not None:
        content: dict[str, Any] = {"schema": shape(route.body)}
        content["examples"] = {name: {"value": it} for name, it in route.examples.items()}
        described["requestBody"] = {"required": True, "content": {"application/json": content}}
    return described


_IDENTIFIER = str.maketrans({"/": "_", ".": "_", "-": "_", "{": None, "}": None})


def _parameters(route: Route) -> Iterator[dict[str, Any]]:
    for part in route.path.split("/"):
        if part.startswith("{"):
            name = part.strip("{}")
            schema = shape(route.parts.get(name, str))
            yield {"name": name, "in": "path", "required": True, "schema": schema}
    if route.query is not None:
        yield from query_parameters(route.query)


def _problems(route: Route) -> dict[str, Any]:
    """Return the error answers that a route can give, by status."""
    codes = [*_ALWAYS, *route.codes]
    codes += _KEYED if route.scope else ()
    codes += _WITH_BODY if route.body is not None else ()
    codes += ("invalid",) if route.query else ()
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
                "content": {"application/problem+json": {"schema": shape(Problem), "examples": {}}},
            },
        )
        described["content"]["application/problem+json"]["examples"][code] = example
        if status in {503, 429}:
            described["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return found


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
