"""Type check of rules: finds rules that can never work.

A rule that compiles can still fail on every context: ``1 / 0 < 2``, ``'a' < 3``, ``3`` alone, or
``intent < 3`` if ``intent`` is a category. Only certain errors are reported: a part that always
fails, or a comparison with a constant answer, such as a text with a number. A vector supports only
``in``: ``0.5 in meaning``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from steersman.errors import InputError
from steersman.spec.expressions import evaluated

Kind = Literal["number", "text", "truth", "list", "vector"]
Kinds: TypeAlias = Mapping[str, Kind]
Member: TypeAlias = tuple[ast.expr, Kind | None]

_SAID: dict[Kind, str] = {
    "number": "a number",
    "text": "a text",
    "truth": "true or false",
    "list": "a list",
    "vector": "a vector",
}
_TRUTH = "a condition that is true or false", "add a comparison"
_ORDER = "two numbers or two texts", "compare values of the same type"
_NUMBERS = "numbers on both sides of + - * /", "use only numbers in arithmetic"
_EQUALS = "two numbers, or two texts", "use a value of the field's type, texts in quotes"
_WITHIN = "a value in a list of its type, or a text in a text", "write such a list after in"
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class Never(NamedTuple):
    """Reason why a rule can never work."""

    what: str
    allowed: str
    advice: str


class _NeverError(Exception):
    """Carries the reason through the recursion."""

    def __init__(self, what: str, wanted: tuple[str, str]) -> None:
        super().__init__(what)
        self.found = Never(what, *wanted)


def never_works(text: str, kinds: Kinds | None = None) -> Never | None:
    """Return why a rule can never work, or None.

    `kinds` holds the types of context fields by name; other fields have unknown types.

    >>> never_works("intent < 3", {"intent": "text"}).what
    'intent (a text) cannot be ordered against 3 (a number)'
    >>> never_works("intent < 3") is None
    True
    """
    tree = ast.parse(text.strip(), mode="eval").body
    try:
        _want(tree, "truth", kinds or {}, _TRUTH)
    except _NeverError as error:
        return error.found
    return None


def _want(node: ast.expr, wanted: Kind, kinds: Kinds, allowed: tuple[str, str]) -> Kind:
    found = _kind(node, kinds)
    if found not in {wanted, None}:
        raise _NeverError(f"{_named(node, found)} is not {_SAID[wanted]}", allowed)
    return wanted


def _kind(node: ast.expr, kinds: Kinds) -> Kind | None:
    """Return the type of a part; None if it depends on the context."""
    match node:
        case ast.Name():
            return kinds.get(node.id)
        case ast.BoolOp():
            for value in node.values:
                _want(value, "truth", kinds, _TRUTH)
        case ast.UnaryOp(op=ast.Not()):
            _want(node.operand, "truth", kinds, _TRUTH)
        case ast.UnaryOp():
            _want(node.operand, "number", kinds, _NUMBERS)
            _always(node)
            return "number"
        case ast.BinOp():
            _calculate(node, kinds)
            return "number"
        case ast.Compare():
            members = [(one, _kind(one, kinds)) for one in (node.left, *node.comparators)]
            for (left, right), operator in zip(pairwise(members), node.ops, strict=True):
                _compare(left, operator, right)
        case _:
            return _kind_of(_always(node))
    return "truth"


def _calculate(node: ast.BinOp, kinds: Kinds) -> None:
    for side in (node.left, node.right):
        _want(side, "number", kinds, _NUMBERS)
    if isinstance(node.op, ast.Div) and _always(node.right) == 0:
        wanted = "any other divisor", "change the divisor"
        raise _NeverError(f"{_cut(node)} is a division by zero", wanted)
    _always(node)


def _compare(left: Member, operator: ast.cmpop, right: Member) -> None:
    first, second = left[1], right[1]
    if isinstance(operator, _ORDERED):
        if not _may_be_ordered(first, second):
            what = f"{_named(*left)} cannot be ordered against {_named(*right)}"
            raise _NeverError(what, _ORDER)
    elif isinstance(operator, ast.In | ast.NotIn):
        if not _may_be_within(first, *right):
            raise _NeverError(f"{_named(*left)} is never in {_named(*right)}", _WITHIN)
    elif not _may_be_equal(first, second):
        raise _NeverError(f"{_named(*left)} never equals {_named(*right)}", _EQUALS)


def _may_be_ordered(first: Kind | None, second: Kind | None) -> bool:
    known = {first, second} - {None}
    return known <= {"text"} or known <= {"number"}


def _may_be_equal(first: Kind | None, second: Kind | None) -> bool:
    known = {first, second} - {None}  # to Python, and so to rules, 1 equals true
    return "vector" not in known and (len(known) < 2 or known <= {"number", "truth"})


def _may_be_within(item: Kind | None, container: ast.expr, kind: Kind | None) -> bool:
    if item == "vector":
        return False
    if kind == "text":
        return item in {"text", None}
    if kind == "list":
        entries = _always(container)
        kinds = [_kind_of(one) for one in entries] if isinstance(entries, tuple) else []
        return not kinds or any(_may_be_equal(item, one) for one in kinds)
    return kind in {"vector", None}


def _always(node: ast.expr) -> object:
    """Return the value of a constant part; None for a part with names."""
    if any(isinstance(one, ast.Name) for one in ast.walk(node)):
        return None
    try:
        return evaluated(node)
    except InputError as error:
        wanted = "an expression that has a value", "change the numbers"
        raise _NeverError(f"{_cut(node)}: {error}".partition(";")[0], wanted) from None


def _kind_of(value: object) -> Kind | None:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "list" if isinstance(value, tuple) else None


def _named(node: ast.expr, kind: Kind | None) -> str:
    return f"{_cut(node)} ({_SAID[kind]})" if kind else _cut(node)


def _cut(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
