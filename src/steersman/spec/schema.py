"""JSON Schema of a decision point.

``python -m steersman.spec.schema`` writes the shipped file; ``--check`` only checks that it is up
to date.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from steersman.spec.base import Declared
from steersman.spec.point import DecisionPoint
from steersman.spec.policy import models_beyond

SCHEMA_FILE = Path(__file__).with_name("decision_point.schema.json")


class _Generator(GenerateJsonSchema):
    """Adds field descriptions, and forbids other keys in mappings by name."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        found = super().model_schema(schema)
        model = schema["cls"]
        for name, meaning in meanings(model).items():
            found["properties"][model.model_fields[name].alias or name]["description"] = meaning
        return found

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        found = super().dict_schema(schema)
        return found | ({"additionalProperties": False} if "patternProperties" in found else {})


def meanings(model: type[Declared]) -> dict[str, str]:
    """Return the attribute docstrings of a model by Python field name.

    pydantic can read them (``use_attribute_docstrings``), but that costs 45 ms at every program
    start.

    >>> meanings(DecisionPoint)["skill"]
    'Name of the skill, an application capability.'
    """
    # Imported here, because a private pydantic name may change; loading needs only public ones.
    from pydantic._internal._docs_extraction import (  # noqa: PLC0415
        extract_docstrings_from_cls,
    )

    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if issubclass(one, Declared):
            found |= extract_docstrings_from_cls(one, use_inspect=True)
    return {name: found[name] for name in model.model_fields if name in found}


@cache
def _schema(*, installed: bool = True) -> dict[str, Any]:
    """Return the schema, by default with the policies of installed distributions."""
    schema = DecisionPoint.model_json_schema(schema_generator=_Generator)
    policy, definitions = schema["properties"]["policy"], schema["$defs"]
    for name, model in models_beyond(installed=installed).items():
        own = model.model_json_schema(schema_generator=_Generator)
        definitions |= {**own.pop("$defs", {}), name: own}
        policy["oneOf"].append({"$ref": f"#/$defs/{name}"})
        policy["discriminator"]["mapping"][name] = f"#/$defs/{name}"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a decision point.

    It holds fields, types, ranges and defaults, so editors can complete and check a declaration,
    also with the policies of installed distributions.
    Only `load` checks conflicts between sections.

    >>> sorted(json_schema()["required"])[:3]
    ['actions', 'decision', 'fallback']
    """
    copy: dict[str, Any] = json.loads(json.dumps(_schema()))
    return copy


def published() -> str:
    """Return the expected text of the schema file, which does not depend on what is installed."""
    return json.dumps(_schema(installed=False), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def names_at(
    path: tuple[str | int, ...], root: object, schema: dict[str, Any] | None = None
) -> list[str]:
    """Return the field names that are allowed at ``path`` of a document.

    Args:
        schema: JSON Schema of the document. Default: that of a decision point.
    """
    schema = schema or _schema()
    here: Any = root
    node = _resolve(schema, root, schema)
    for part in path:
        node = node.get("items", {}) if isinstance(part, int) else _entry(node, part)
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            here = None
        node = _resolve(node, here, schema)
    return list(node.get("properties", {}))


def _entry(node: dict[str, Any], name: str) -> dict[str, Any]:
    declared: dict[str, dict[str, Any]] = node.get("properties", {})
    if name in declared:
        return declared[name]
    by_pattern: dict[str, dict[str, Any]] = node.get("patternProperties", {})
    return next(iter(by_pattern.values()), {})


def _resolve(node: dict[str, Any], here: object, schema: dict[str, Any]) -> dict[str, Any]:
    """Resolve references and alternatives to the schema of ``here``."""
    if "$ref" in node:
        return _resolve(schema["$defs"][node["$ref"].rsplit("/", 1)[1]], here, schema)
    if "discriminator" in node:
        key, members = node["discriminator"]["propertyName"], node["discriminator"]["mapping"]
        chosen = members.get(here.get(key)) if isinstance(here, dict) else None
        return _resolve({"$ref": chosen}, here, schema) if chosen else {}
    for member in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        found = _resolve(member, here, schema)
        if "properties" in found:
            return found
    return node


def main(arguments: list[str]) -> int:
    """Write the schema file, or with ``--check`` return 1 when it is out of date."""
    if "--check" in arguments:
        return int(SCHEMA_FILE.read_text(encoding="utf-8") != published())
    SCHEMA_FILE.write_text(published(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
