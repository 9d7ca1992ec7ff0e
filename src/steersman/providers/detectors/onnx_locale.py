"""ONNX locale patch: replaces the locale ``en_US.UTF-8`` of a model by "C".

ONNX Runtime cannot load a model that folds case if ``en_US.UTF-8`` is not installed, as in most
containers. The locale does not matter for lower-case input. A model is a Protocol Buffers message;
only the changed fields are rewritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GRAPH, _NODE, _OPERATOR, _ATTRIBUTE, _NAME, _TEXT, _TYPE, _STRING = 7, 1, 4, 5, 1, 4, 20, 3
_FOLDS_CASE = b"StringNormalizer"
_LOCALE = b"locale"


def in_plain_locale(model: bytes) -> bytes:
    """Return an ONNX model whose case-folding nodes use the locale "C".

    Raises:
        DataError: the bytes are not an ONNX model.
    """
    try:
        return _within(model, _GRAPH, lambda graph: _within(graph, _NODE, _plain))
    except (IndexError, ValueError) as error:
        raise DataError(f"not an ONNX model ({len(model)} bytes): {error}") from None


def _plain(node: bytes) -> bytes:
    fields = list(_fields(node))
    if (_OPERATOR, _FOLDS_CASE) not in [(number, value) for number, value, _ in fields]:
        return node
    told = [
        whole
        for number, value, whole in fields
        if not (number == _ATTRIBUTE and (_NAME, _LOCALE) in [one[:2] for one in _fields(value)])
    ]
    locale = _field(_NAME, _LOCALE) + _field(_TEXT, b"C") + _number(_TYPE << 3) + _number(_STRING)
    return b"".join([*told, _field(_ATTRIBUTE, locale)])


def _within(message: bytes, wanted: int, change: Callable[[bytes], bytes]) -> bytes:
    parts = []
    for number, value, whole in _fields(message):
        new = change(value) if number == wanted else value
        parts.append(whole if new == value else _field(number, new))
    return b"".join(parts)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield number, value and raw bytes of each field."""
    place = 0
    while place < len(message):
        begin = place
        key, place = _read(message, place)
        start = place
        if key & 7 == 2:
            length, start = _read(message, place)
            place = start + length
        elif key & 7 == 0:
            _, place = _read(message, place)
        elif key & 7 in {1, 5}:
            place += 8 if key & 7 == 1 else 4
        else:
            raise ValueError(f"unknown wire type {key & 7}")
        if place > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[start:place], message[begin:place]


def _read(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError("an integer is not terminated")


def _number(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _field(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value
