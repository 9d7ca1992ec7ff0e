"""JSON as it must be when it comes from outside: valid UTF-8, finite, shallow, no key twice.

msgspec keeps the last of two equal keys, so two programs can read one body differently; here such
a body is refused. The check costs little: when a body has as many colons as the decoded value has
keys, no key can be hidden; where texts hold colons too, the value is encoded again, and a key that
was dropped would be missing there.
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
    200_000  # objects and lists of one body: a few bytes each to send, hundreds to hold
)
_WITHIN = frozenset({dict, list, int})  # what has to be looked at
_MANY = 16  # values, from which on looking at all together costs less than one by one
_LEAST, _TOO_MUCH = -(2**63), 2**64
_VALUES = dict.values
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="sorted").encode


def read(body: bytes | bytearray, *, max_bytes: int = 1 << 20) -> Any:
    """Return what a body of JSON says.

    Args:
        body: as it came.
        max_bytes: most bytes that are looked at.

    Returns:
        dicts, lists, str, finite numbers, bool and None, at most 32 levels deep.

    Raises:
        Refused: too large, too many objects and lists, not UTF-8, not JSON, a number out of range,
            nested too deeply, a key twice in one object, or U+0000 in a text, which no database
            column can hold.

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
        value: a message, or anything msgspec can encode.

    Returns:
        Compact UTF-8.

    >>> write({"a": 1})
    b'{"a":1}'
    """
    return _encode(value)


def canonical_hash(value: Any) -> bytes:
    """Return a hash that does not depend on the order of keys or on white space.

    Args:
        value: what `read` returned.

    Returns:
        16 bytes.

    >>> canonical_hash({"a": 1, "b": 2}) == canonical_hash({"b": 2, "a": 1})
    True
    """
    return blake2b(_canonical(value), digest_size=16).digest()


def _keys(value: Any, depth: int) -> int:
    """Return the number of keys in ``value``; refuse what is too deep or too long to be kept."""
    kind = type(value)
    if kind is dict:
        return len(value) + _keys_inside(value.values(), depth)
    if kind is list:
        return _keys_inside(value, depth)
    if kind is int and not _LEAST <= value < _TOO_MUCH:
        raise _bad("an integer has more than 64 bits; send a text or a float")
    return 0


def _keys_inside(values: Collection[Any], depth: int) -> int:
    """Return the number of keys in what an object or a list holds, or many of them side by side."""
    if depth > MAX_DEPTH:
        raise _too_deep()
    if len(values) < _MANY:
        return sum([_keys(value, depth + 1) for value in values if type(value) in _WITHIN])
    # All of a level at once, such as the events of a batch: one by one took up to twice as long.
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
    """Return whether ``body``, with its texts' colons, names more keys than ``value`` has."""
    if b"\\u003" in body:
        # What is left of the backslashes begins an escape: pairs are backslashes themselves.
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
