"""Predefined type information for new connections.

asyncpg queries the server for each new array type, which costs 5 ms. Built-in PostgreSQL types have
fixed ids. This uses a private interface of asyncpg. Lock files pin its version and
``tests/db/test_known_types.py`` checks interface and ids.
"""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.platform.postgres import float_arrays

ARRAYS = {
    "bool": (16, 1000),
    "bytea": (17, 1001),
    "int8": (20, 1016),
    "int4": (23, 1007),
    "float8": (701, 1022),
    "timestamptz": (1184, 1185),
    "uuid": (2950, 2951),
    "jsonb": (3802, 3807),
}
"""Type id and array type id by element name."""
_JSONB = ARRAYS["jsonb"][0]
_JSONB_VERSION = b"\x01"
_NO_OTHER_KIND = dict.fromkeys(
    ("basetype", "basetype_name", "range_subtype", "range_subtype_name", "attrtypoids", "attrnames")
)
_KNOWN = [
    _NO_OTHER_KIND
    | {"oid": array, "ns": "pg_catalog", "name": f"_{element}", "kind": b"b"}
    | {"elemtype": oid, "elemtype_name": element, "elemdelim": ","}
    for element, (oid, array) in ARRAYS.items()
]


def register(connection: Any) -> None:
    """Register the known types on a connection."""
    float_arrays.register(connection)
    types = connection._protocol.get_settings()  # noqa: SLF001 (see above)
    # Binary, since composites (whole rows as arguments) cannot hold a text format.
    types.add_python_codec(
        _JSONB, "jsonb", "pg_catalog", [], "scalar", _to_jsonb, _from_jsonb, "binary"
    )
    types.register_data_types(_KNOWN)


def _to_jsonb(value: object) -> bytes:
    return _JSONB_VERSION + msgspec.json.encode(value)


def _from_jsonb(data: bytes) -> Any:
    return msgspec.json.decode(data[1:])
