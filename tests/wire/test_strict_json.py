"""Strict JSON refuses what two programs could read differently, and nothing else."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.wire import Refused, canonical_hash, read, write

DEEP = 32

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.sampled_from(["a", "b", ":", "a:b", '"', "\\", "ä", "\x00", "\u2028", ""]) | texts
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | texts | keys


class Pairs(list[Any]):
    """An object that may hold a key twice, which no dict can."""


def containers(inner: Any) -> Any:
    return st.lists(inner, max_size=4) | st.lists(st.tuples(keys, inner), max_size=4).map(Pairs)


def encoded(value: Any, *, ascii_only: bool, gap: str) -> str:
    if isinstance(value, Pairs):
        pairs = [
            f"{gap}{json.dumps(key, ensure_ascii=ascii_only)}{gap}:"
            + encoded(inner, ascii_only=ascii_only, gap=gap)
            for key, inner in value
        ]
        return "{" + ",".join(pairs) + gap + "}"
    if isinstance(value, list):
        inside = (encoded(inner, ascii_only=ascii_only, gap=gap) for inner in value)
        return "[" + ",".join(inside) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def reference(text: str) -> Any:
    """Read slowly, with the standard library, and raise ValueError for what is not allowed."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs) or any("\x00" in key for key, _ in pairs):
            raise ValueError
        return dict(pairs)

    def check(value: Any, depth: int) -> None:
        if isinstance(value, str) and "\x00" in value:
            raise ValueError
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError
        inside = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            if depth > DEEP:
                raise ValueError
            for inner in inside:
                check(inner, depth + 1)

    value = json.loads(text, object_pairs_hook=unique)
    check(value, 1)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("beside", [0, 20])
@given(
    value=st.recursive(leaves, containers, max_leaves=12),
    ascii_only=st.booleans(),
    gap=st.sampled_from(["", " ", "\n\t"]),
)
def test_it_reads_as_a_slow_reader_does(
    beside: int, value: Any, ascii_only: bool, gap: str
) -> None:
    """Also among many others, which are looked at together."""
    if beside:
        value = [*[Pairs([("a", [n])]) for n in range(beside)], value, *range(beside)]
    text = encoded(value, ascii_only=ascii_only, gap=gap)
    try:
        wanted = reference(text)
    except ValueError:
        with pytest.raises(Refused):
            read(text.encode())
    else:
        assert read(text.encode()) == wanted


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1, "a": 1}',
        b'{"a": 1, "\\u0061": 2}',
        b'{"a": "x:y", "a": "\\u003a"}',
        b'{"a": {"b": 1, "b": 2}, "c": "::"}',
        b'[{"a": "\\"", "a": ":"}]',
        b'{"a\\/b": 1, "a/b": 2}',
        b'{"a": "\\\\u003a:", "a": "\\u003A"}',
        b'{"\\u003a": 1, ":": "\\\\\\u003a"}',
        b"[" + b'{"a": ":"},' * 20 + b'{"a": 1, "a": 2}]',
    ],
)
def test_a_key_twice_is_found_however_it_is_written(body: bytes) -> None:
    with pytest.raises(Refused, match="duplicate key"):
        read(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nan",
        b"NaN",
        b"Infinity",
        b"1e999",
        b"-1e999",
        b'{"a": 1e400}',
        b'"\xff"',
        b'{"\xff": 1}',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": 1} x',
        b"{'a': 1}",
        b'{"a": 1,}',
        b"[1,]",
        b"01",
        b"+1",
        b".5",
        b"18446744073709551616",
        b"-9223372036854775809",
        b"[" + b"9" * 5000 + b"]",
        b'"\x01"',
        b'"\\u0000"',
        b'{"\\u0000": 1}',
        b"[" * 33 + b"]" * 33,
        b'{"a":' * 32 + b"{}" + b"}" * 32,
        b'[{"a":1},{"a":' + b"[" * 31 + b"]" * 31 + b"}]",
        b'[{"a":1},{"a":{"b":2}},{"a":18446744073709551616}]',
        b'{"a":[1,2,-9223372036854775809]}',
        b"[" + b'{"a":1},' * 20 + b'{"a":18446744073709551616}]',
        b"[" + b"1," * 20 + b"-9223372036854775809]",
        b"[" + b'{"a":[1]},' * 20 + b'{"a":' + b"[" * 31 + b"]" * 31 + b"}]",
        b"[" + b"[1]," * 20 + b'{"a":' * 31 + b"{}" + b"}" * 31 + b"]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"// no\n1",
    ],
)
def test_what_is_not_strict_json_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read(body)
    assert refused.value.problem.status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 32 + b"]" * 32,
        b'{"a":' * 31 + b"{}" + b"}" * 31,
        b'[{"a":1},{"a":' + b"[" * 30 + b"]" * 30 + b"}]",
        b'[{"a":1},{"a":{"b":2}},{"a":[{"b":18446744073709551615},[]]}]',
        b"[" + b'{"a":[1]},' * 20 + b'{"a":' + b"[" * 30 + b"]" * 30 + b"}]",
        b"[" + b"[1]," * 20 + b'{"a":' * 30 + b"{}" + b"}" * 30 + b"]",
        b"[" + b'{"a":1,":":[]},' * 20 + b"18446744073709551615]",
        b"18446744073709551615",
        b"-9223372036854775808",
        b'{"url": "http://a:80/", "b": "\\u003a"}',
        b'{"": 1}',
        b'{"a": "\\\\u003a:", "b": "\\\\\\u003a", "\\u003A": "\\u003b"}',
        b"  1  ",
    ],
)
def test_what_is_odd_but_strict_is_read(body: bytes) -> None:
    assert read(body) == json.loads(body)


def test_a_large_body_is_refused_before_it_is_read() -> None:
    with pytest.raises(Refused) as refused:
        read(b"[" * 11, max_bytes=10)
    assert refused.value.problem.status == 413


def test_a_body_of_very_many_objects_is_refused_before_it_is_read() -> None:
    with pytest.raises(Refused) as refused:
        read(b"[" + b"{}," * 200_000 + b"{}]", max_bytes=8 << 20)
    assert refused.value.problem.status == 413
    assert len(read(b"[" + b"{}," * 99_999 + b"{}]", max_bytes=8 << 20)) == 100_000


def test_a_long_text_with_escapes_takes_little_beside_itself() -> None:
    body = b'{"a":"\\u003a:' + b"x" * (1 << 20) + b'"}'
    tracemalloc.start()
    try:
        read(body, max_bytes=2 << 20)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 << 20


@pytest.mark.slow
@given(st.dictionaries(texts, leaves.filter(lambda leaf: not isinstance(leaf, float))))
def test_the_hash_does_not_depend_on_order(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical_hash(value) == canonical_hash(turned)
    assert len(canonical_hash(value)) == 16


def test_what_is_written_can_be_read() -> None:
    assert read(write({"a": [1, 2.5, None, "ä"]})) == {"a": [1, 2.5, None, "ä"]}
