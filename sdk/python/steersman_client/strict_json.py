"""JSON limits of the service, checked before a message is sent."""

from __future__ import annotations

from typing import Any

import msgspec

_MOST_BYTES = 16 << 20
_MOST_DEPTH = 32
_MOST_CONTAINERS = 200_000
_LEAST, _TOO_MUCH = -(2**63), 2**64
_WITHIN = frozenset({dict, list, int})  # types that need a check
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def read(body: bytes) -> Any:
    """Return the decoded JSON.

    Raises:
        ValueError: the service refuses this body: it is too large or not JSON, nested too deep, has
            a duplicate key, an integer of more than 64 bits, or U+0000 in a text.

    >>> read(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: an object has a duplicate key; send each key once
    """
    if len(body) > _MOST_BYTES:
        raise ValueError(
            f"the body has {len(body)} bytes; allowed: at most {_MOST_BYTES}; send a smaller body"
        )
    if len(body) > _MOST_CONTAINERS and body.count(b"{") + body.count(b"[") > _MOST_CONTAINERS:
        raise ValueError(
            f"the body has over {_MOST_CONTAINERS} objects and lists; send a smaller body"
        )
    value = _decode(body)
    if b"\\u0000" in body and "\x00" in _texts(value):
        raise ValueError("a text contains U+0000, which cannot be stored; remove it")
    # msgspec keeps the last of two equal keys. Without one, the body has as many colons as keys, or
    # texts have some too: then as many as the value that is encoded again.
    keys, colons = _keys(value, 1), body.count(b":")
    if keys != colons and _encode(value).count(b":") != colons:
        raise ValueError("an object has a duplicate key; send each key once")
    return value


def _keys(value: Any, depth: int) -> int:
    """Return the number of keys in a value; refuse deep nesting and large integers."""
    kind = type(value)
    if kind is int and not _LEAST <= value < _TOO_MUCH:
        raise ValueError("an integer has more than 64 bits; send a text or a float")
    if kind is not dict and kind is not list:
        return 0
    if depth > _MOST_DEPTH:
        raise ValueError(f"values are nested more than {_MOST_DEPTH} deep; flatten them")
    inner = value.values() if kind is dict else value
    keys = len(value) if kind is dict else 0
    return keys + sum([_keys(one, depth + 1) for one in inner if type(one) in _WITHIN])


def _texts(value: Any) -> str:
    """Return all keys and texts of a value in one text."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "".join([*value, *map(_texts, value.values())])
    return "".join(map(_texts, value)) if isinstance(value, list) else ""
