"""Rules that can never work: what each of their parts is, as far as it is known beforehand.

A rule that compiles can still fail on every context: ``1 / 0 < 2``, ``'a' < 3``, ``3`` alone, or
``intent < 3`` where ``intent`` is declared a category. Only what is certain is told: a part that
fails whenever it is reached, or compares a text with a number and so never changes its answer. A
vector is a list, which rules only look into: ``0.5 in meaning``.
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
_TRUTH = "a condition that is true or false", "compare it with something"
_ORDER = "two numbers or two texts", "compare it with its own kind"
_NUMBERS = "numbers on both sides of + - * /", "calculate with numbers alone"
_EQUALS = "two of a kind: numbers, or texts", "write what the field can be, texts in quotes"
_WITHIN = "a value in a list of its kind, or a text in a text", "write such a list after in"
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class Never(NamedTuple):
    """Why a rule can never work: what is wrong, what is allowed, what to do."""

    what: str
    allowed: str
    advice: str


class _NeverError(Exception):
    """Carries what was found out of the parts."""

    def __init__(self, what: str, wanted: tuple[str, str]) -> None:
        super().__init__(what)
        self.found = Never(what, *wanted)


def never_works(text: str, kinds: Kinds | None = None) -> Never | None:
    """Return why a rule can never work, or None.

    Args:
        text: a rule that `compile_rule` takes.
        kinds: what context fields are, by name; of those that are left out nothing is known.

    >>> never_works("intent < 3", {"intent": "text"}).what
    'intent (a text) is never ordered against 3 (a number)'
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
    """Return what a part is, None where nobody knows before there is a context."""
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
        wanted = "any other divisor", "divide by something else"
        raise _NeverError(f"{_cut(node)} is a division by zero", wanted)
    _always(node)


def _compare(left: Member, operator: ast.cmpop, right: Member) -> None:
    first, second = left[1], right[1]
    if isinstance(operator, _ORDERED):
        if not _may_be_ordered(first, second):
            what = f"{_named(*left)} is never ordered against {_named(*right)}"
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
    """Return what a part without names is, None for one with names."""
    if any(isinstance(one, ast.Name) for one in ast.walk(node)):
        return None
    try:
        return evaluated(node)
    except InputError as error:
        wanted = "what has a value", "change the numbers"
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
