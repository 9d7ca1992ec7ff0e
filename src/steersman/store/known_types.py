"""What a new connection knows of types, so that it need not ask the server.

asyncpg asks for every array type that a connection meets for the first time, with a query that
costs the server 5 ms, and by name for a type that is to be read another way. Those that belong to
PostgreSQL itself have the same numbers on every server and in every version.

It is told past asyncpg's own interface, which offers neither; the locks pin its version, and
``tests/store/test_known_types.py`` fails if the way is closed or a server numbers them otherwise.
"""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.store import float_arrays

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
"""By the name of the element: its number, and that of its array."""
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
    """Tell a connection what there is to know.

    Args:
        connection: of asyncpg, new; JSON columns are Python values from then on.
    """
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
