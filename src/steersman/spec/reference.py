"""Generator of the field tables on the reference page of decision points.

``python -m steersman.spec.reference PAGE`` rewrites the tables of a Markdown page from the
declared models. Each table follows its marker: ``<!-- fields: TextField -->``.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from steersman.spec.schema import json_schema

_TABLE = re.compile(r"(<!-- fields: (\w+) -->\n)(?:\|.*\n)*")
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minItems": "≥ {} entries",
    "maxItems": "≤ {} entries",
    "minProperties": "≥ {} entries",
    "maxProperties": "≤ {} entries",
    "maxLength": "at most {} characters",
}
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
}


def refreshed(page: str) -> str:
    """Return a Markdown page with updated tables.

    Raises:
        KeyError: a marker names an unknown part.
    """
    schema = json_schema()
    parts = {"DecisionPoint": schema, **schema["$defs"]}
    return _TABLE.sub(lambda match: match[1] + _table(parts[match[2]]), page)


def _table(part: dict[str, Any]) -> str:
    required = set(part.get("required", ()))
    rows = ["| field | value | default | meaning |", "|---|---|---|---|"]
    for name, field in part["properties"].items():
        default = "required" if name in required else _default(field)
        meaning = " ".join(field.get("description", "").split())
        rows.append(f"| `{name}` | {_value(field)} | {default} | {meaning} |")
    return "".join(f"{row}\n" for row in rows)


def _default(field: dict[str, Any]) -> str:
    if "default" not in field:
        return "empty"
    value = field["default"]
    # Nested defaults do not fit into a table; the page has a section for them.
    text = json.dumps(value)
    return "see there" if "{" in text else f"`{text}`"


def _value(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return _link(field["$ref"])
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    members = field.get("anyOf") or field.get("oneOf")
    if members:
        return " or ".join(_value(member) for member in members)
    return _container(field) + _range(field)


def _container(field: dict[str, Any]) -> str:
    kind = field["type"]
    if kind == "array" and "prefixItems" in field:
        return f"list of {len(field['prefixItems'])}: {_value(field['prefixItems'][0])}"
    if kind == "array":
        return f"list: {_value(field['items'])}"
    if kind == "object":
        inner = next(iter(field.get("patternProperties", {}).values()), None)
        return f"name: {_value(inner or field['additionalProperties'])}"
    return "a name" if _is_name(field) else _TYPES[kind]


def _is_name(field: dict[str, Any]) -> bool:
    return "A-Za-z0-9_" in field.get("pattern", "")


def _range(field: dict[str, Any]) -> str:
    if field["type"] == "array" and "prefixItems" in field:
        return ""
    limits = [text.format(_number(field[name])) for name, text in _BOUNDS.items() if name in field]
    return f" ({', '.join(limits)})" if limits else ""


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _link(reference: str) -> str:
    name = reference.rsplit("/", 1)[1]
    return f"[{name}](#{name.lower()})"


def main(arguments: list[str]) -> int:
    """Refresh the pages named in ``arguments``."""
    for page in map(Path, arguments):
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
