"""Strict JSON decoder for untrusted input: valid UTF-8, limited depth, no duplicate keys.

msgspec keeps the last of two equal keys, so two programs could read one body differently. This
decoder refuses such a body at little cost: if the body has as many colons as the value has keys,
it has no duplicate. If texts have colons too, the value is encoded again and colons are compared.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.wire.problems import Refused

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_DEPTH = 32
MAX_CONTAINERS = (
    200_000  # objects and lists per body: each takes a few bytes to send, but hundreds in memory
)
_WITHIN = frozenset({dict, list, int})  # types that need a check
_MANY = 16  # from this number of values, a check of all at once is faster
_LEAST, _TOO_MUCH = -(2**63), 2**64
_VALUES = dict.values
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="sorted").encode


def read(body: bytes | bytearray, *, max_bytes: int = 1 << 20) -> Any:
    """Return the decoded value of a JSON body.

    Args:
        body: received bytes.
        max_bytes: largest accepted size in bytes.

    Returns:
        dict, list, str, finite numbers, bool and None, at most 32 levels deep.

    Raises:
        Refused: too large, too many objects and lists, not UTF-8, not JSON, a number out of range,
            nested too deep, a duplicate key, or U+0000 in a text, which the database cannot store.

    >>> read(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> read(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    steersman.wire.problems.Refused: an object has a duplicate key; send each key once
    """
    if len(body) > max_bytes:
        detail = (
            f"the body has {len(body)} bytes; allowed: at most {max_bytes}; send a smaller body"
        )
        raise Refused.of("too_large", detail)
    if len(body) > MAX_CONTAINERS and body.count(b"{") + body.count(b"[") > MAX_CONTAINERS:
        detail = f"the body has over {MAX_CONTAINERS} objects and lists; send a smaller body"
        raise Refused.of("too_large", detail)
    try:
        value = _decode(body)
    except msgspec.DecodeError as error:
        raise _bad(f"{error}; send one JSON value in UTF-8") from None
    except UnicodeDecodeError:
        raise _bad("the body is not valid UTF-8; send UTF-8") from None
    except RecursionError:
        raise _too_deep() from None
    if b"\\u0000" in body:
        _refuse_nul(value)
    keys, colons = _keys(value, 1), body.count(b":")
    if keys != colons and _hides_a_key(body, value, colons):
        raise _bad("an object has a duplicate key; send each key once")
    return value


def write(value: Any) -> bytes:
    """Return ``value`` as JSON.

    Args:
        value: a message, or any value that msgspec can encode.

    Returns:
        Compact UTF-8.

    >>> write({"a": 1})
    b'{"a":1}'
    """
    return _encode(value)


def canonical_hash(value: Any) -> bytes:
    """Return a hash that ignores the order of keys and white space.

    Args:
        value: result of `read`.

    Returns:
        16 bytes.

    >>> canonical_hash({"a": 1, "b": 2}) == canonical_hash({"b": 2, "a": 1})
    True
    """
    return blake2b(_canonical(value), digest_size=16).digest()


def _keys(value: Any, depth: int) -> int:
    """Return the number of keys in ``value``; refuse deep nesting and integers over 64 bits."""
    kind = type(value)
    if kind is dict:
        return len(value) + _keys_inside(value.values(), depth)
    if kind is list:
        return _keys_inside(value, depth)
    if kind is int and not _LEAST <= value < _TOO_MUCH:
        raise _bad("an integer has more than 64 bits; send a text or a float")
    return 0


def _keys_inside(values: Collection[Any], depth: int) -> int:
    """Return the number of keys inside the values of one level."""
    if depth > MAX_DEPTH:
        raise _too_deep()
    if len(values) < _MANY:
        return sum([_keys(value, depth + 1) for value in values if type(value) in _WITHIN])
    # All values of a level at once, for example the events of a batch: up to twice as fast.
    kinds = set(map(type, values))
    if int in kinds:
        numbers = [value for value in values if type(value) is int]
        for extreme in (min(numbers), max(numbers)):
            _keys(extreme, depth)
    objects = [value for value in values if type(value) is dict] if dict in kinds else []
    lists = [value for value in values if type(value) is list] if list in kinds else []
    if not objects and not lists:
        return 0
    inside = [*chain.from_iterable(map(_VALUES, objects)), *chain.from_iterable(lists)]
    return sum(map(len, objects)) + _keys_inside(inside, depth + 1)


def _hides_a_key(body: bytes | bytearray, value: Any, colons: int) -> bool:
    """Return whether ``body`` has more keys than ``value``."""
    if b"\\u003" in body:
        # A pair of backslashes is a literal backslash; the others start an escape.
        escapes = body.replace(b"\\\\", b"")
        colons += escapes.count(b"\\u003a") + escapes.count(b"\\u003A")
    return _encode(value).count(b":") != colons


def _refuse_nul(value: Any) -> None:
    if isinstance(value, str) and "\x00" in value:
        raise _bad("a text contains U+0000, which cannot be stored; remove it")
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_nul(key)
            _refuse_nul(inner)
    elif isinstance(value, list):
        for inner in value:
            _refuse_nul(inner)


def _bad(detail: str) -> Refused:
    return Refused.of("bad_json", detail)


def _too_deep() -> Refused:
    return _bad(f"values are nested more than {MAX_DEPTH} deep; flatten them")
