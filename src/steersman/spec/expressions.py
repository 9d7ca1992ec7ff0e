"""Expression language of rules: ``confidence < 0.2 and intent in ["faq", "chat"]``.

Python's parser reads the expression. Each allowed node type is compiled into a closure; ``eval``
and ``exec`` are never used. The language has comparisons (also chained), ``and``, ``or``, ``not``,
``in``, ``not in``, ``+ - * /`` on numbers, names of context fields, numbers, strings, ``True``,
``False``, and lists or tuples of literals.

This module needs only the standard library, so policies can use rules without the YAML parser.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeGuard

from steersman.errors import InputError, SpecError

MAX_LENGTH = 500
MAX_DEPTH = 50

Evaluate = Callable[[Mapping[str, object]], object]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """Compiled condition. Call it with a context; it returns whether the condition holds.

    `compile_rule` creates it. Two rules are equal if their texts are equal.

    Attributes:
        text: the expression.
        names: the context fields that it reads.
    """

    text: str
    names: frozenset[str] = field(compare=False)
    _evaluate: Evaluate = field(compare=False, repr=False)

    def __call__(self, context: Mapping[str, object]) -> bool:
        """Return whether the condition holds for ``context``.

        Raises:
            InputError: missing name, incompatible types, division by zero, or a result other than
                true or false.
        """
        try:
            result = self._evaluate(context)
        except InputError as error:
            message = f"rule {self.text!r}: {error}"
            raise InputError(message) from None
        if isinstance(result, bool):
            return result
        message = f"rule {self.text!r} returned {_show(result)}; allowed: true or false; compare it"
        raise InputError(message)

    def __reduce__(self) -> tuple[Callable[[str], CompiledRule], tuple[str]]:
        """Pickle the text, because closures cannot be pickled."""
        return compile_rule, (self.text,)


def compile_rule(text: str) -> CompiledRule:
    """Return the compiled rule of an expression.

    Args:
        text: expression, at most 500 characters, nested at most 50 deep.

    Raises:
        SpecError: not a text, a syntax error, or an expression outside the language. The message
            names the column.

    >>> rule = compile_rule("0.2 <= confidence < 0.5 and intent not in ['chat', 'faq']")
    >>> rule({"confidence": 0.3, "intent": "weather"}), sorted(rule.names)
    (True, ['confidence', 'intent'])
    """
    _check_text(text)
    if len(text) > MAX_LENGTH:
        message = (
            f"rule has {len(text)} characters; allowed at most {MAX_LENGTH} characters; split it"
        )
        raise SpecError(message)
    tree = _parse(text)
    try:
        evaluate = _build(tree, 0)
    except _RefusedError as refused:
        raise _spec_error(text, _column(text, refused.node), str(refused)) from None
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return CompiledRule(text, names, evaluate)


def _check_text(value: object) -> None:
    if not isinstance(value, str):
        message = f"invalid rule {_show(value)}; allowed: an expression as text (str); quote it"
        raise SpecError(message)


class _RefusedError(Exception):
    """Carries the node that is outside the language."""

    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(what)
        self.node = node


def _parse(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            # The parser only warns about text such as "1and 2"; a rule must be unambiguous.
            warnings.simplefilter("error")
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        indent = len(text) - len(text.lstrip())
        column = indent + error.offset if error.offset else len(text.rstrip()) + 1
        raise _spec_error(text, column, error.msg) from None
    except (Warning, ValueError, RecursionError, MemoryError) as error:
        raise _spec_error(text, 1, str(error) or "too deeply nested") from None


def _column(text: str, node: ast.AST) -> int:
    """Return the 1-based column of a node in the original text."""
    read = text.strip().replace("\r\n", "\n").replace("\r", "\n")
    before = read.split("\n")[: getattr(node, "lineno", 1)]
    within = before.pop().encode("utf-8", "surrogatepass")[: getattr(node, "col_offset", 0)]
    indent = len(text) - len(text.lstrip())
    return indent + sum(len(line) + 1 for line in before) + len(within.decode()) + 1


def _spec_error(text: str, column: int, what: str) -> SpecError:
    return SpecError(
        f"rule {text!r}, column {column}: {what}; allowed: comparisons, and, or, not, in, "
        "+ - * /, names of context fields, and literals; correct the condition"
    )


def evaluated(node: ast.expr) -> object:
    """Return the value of a constant part of a compiled rule.

    Raises:
        InputError: the part fails whenever the rule reaches it.
    """
    return _build(node, 0)({})


def _build(node: ast.AST, depth: int) -> Evaluate:
    if depth > MAX_DEPTH:
        raise _RefusedError(node, f"nested more than {MAX_DEPTH} deep")
    builder = _BUILDERS.get(type(node))
    if builder is None:
        raise _RefusedError(node, f"{type(node).__name__} is not part of the language")
    return builder(node, depth + 1)


def _constant(node: ast.Constant, _depth: int) -> Evaluate:
    value = node.value
    if not isinstance(value, bool | int | float | str):
        raise _RefusedError(node, f"literal {value!r} is not part of the language")
    return lambda _context: value


def _name(node: ast.Name, _depth: int) -> Evaluate:
    name = node.id

    def read(context: Mapping[str, object]) -> object:
        if name not in context:
            known = ", ".join(sorted(context)) or "nothing"
            message = f"the context has no field {name!r}; it has {known}"
            raise InputError(message)
        return context[name]

    return read


def _sequence(node: ast.List | ast.Tuple, depth: int) -> Evaluate:
    values = tuple(_literal(item, depth) for item in node.elts)
    return lambda _context: values


def _literal(item: ast.expr, depth: int) -> object:
    """Return an entry of a list: a literal, or a number with a sign."""
    match item:
        case ast.Constant():
            return _build(item, depth)({})
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant() as literal):
            number = _build(literal, depth)({})
            if _is_number(number):
                return -number if isinstance(sign, ast.USub) else number
            raise _RefusedError(item, "a sign needs a number")
    raise _RefusedError(item, "a list may hold only literals")


def _boolean(node: ast.BoolOp, depth: int) -> Evaluate:
    parts = [_build(value, depth) for value in node.values]
    stop_at = isinstance(node.op, ast.Or)

    def evaluate(context: Mapping[str, object]) -> bool:
        for part in parts:
            if _truth(part(context)) is stop_at:
                return stop_at
        return not stop_at

    return evaluate


def _unary(node: ast.UnaryOp, depth: int) -> Evaluate:
    operand = _build(node.operand, depth)
    if isinstance(node.op, ast.Not):
        return lambda context: not _truth(operand(context))
    if isinstance(node.op, ast.USub):
        return lambda context: -_number(operand(context))
    if isinstance(node.op, ast.UAdd):
        return lambda context: _number(operand(context))
    raise _RefusedError(node, "this operator is not part of the language")


def _arithmetic(node: ast.BinOp, depth: int) -> Evaluate:
    apply = _ARITHMETIC.get(type(node.op))
    if apply is None:
        raise _RefusedError(node, f"{type(node.op).__name__} is not part of the language")
    left, right = _build(node.left, depth), _build(node.right, depth)

    def evaluate(context: Mapping[str, object]) -> float:
        try:
            return apply(_number(left(context)), _number(right(context)))
        except ZeroDivisionError:
            message = "division by zero; allowed: any other divisor; compare the divisor with 0 "
            raise InputError(message + "first, for example a != 0 and b / a < 1") from None
        except ArithmeticError as error:
            message = f"{error}; allowed: numbers up to 1.7e308; change the unit"
            raise InputError(message) from None

    return evaluate


def _comparison(node: ast.Compare, depth: int) -> Evaluate:
    first = _build(node.left, depth)
    steps = []
    for symbol, operand in zip(node.ops, node.comparators, strict=True):
        compare = _COMPARISONS.get(type(symbol))
        if compare is None:
            raise _RefusedError(node, f"{type(symbol).__name__} is not part of the language")
        steps.append((compare, _build(operand, depth)))

    def evaluate(context: Mapping[str, object]) -> bool:
        left = first(context)
        for compare, operand in steps:
            right = operand(context)
            if not compare(left, right):
                return False
            left = right
        return True

    return evaluate


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    message = f"and, or, not need true or false; got {_show(value)}; add a comparison"
    raise InputError(message)


def _number(value: object) -> float:
    if not _is_number(value):
        message = f"arithmetic needs numbers; got {_show(value)}; send a number, or change the rule"
        raise InputError(message)
    try:
        return float(value)
    except OverflowError:
        message = f"arithmetic needs numbers up to 1.7e308; got {_show(value)}"
        raise InputError(message) from None


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[object, object], bool]:
    def evaluate(left: object, right: object) -> bool:
        both_text = isinstance(left, str) and isinstance(right, str)
        if both_text or (_is_number(left) and _is_number(right)):
            return bool(compare(left, right))
        message = (
            f"cannot order {_show(left)} and {_show(right)}; allowed: two numbers or two texts"
        )
        raise InputError(message)

    return evaluate


def _equal(left: object, right: object) -> bool:
    for value in (left, right):
        _check_comparable(value)
    if isinstance(left, tuple) != isinstance(right, tuple):
        return False  # numpy numbers would be compared with each entry
    return _answer(left, right, operator.eq)


def _answer(left: object, right: object, compare: Callable[[Any, Any], Any]) -> bool:
    try:
        return bool(compare(left, right))
    except ValueError:  # arrays inside give an array of answers
        message = f"cannot compare {_show(left)} and {_show(right)}; allowed: numbers, texts, lists"
        raise InputError(message) from None


def _check_comparable(value: object) -> None:
    if not isinstance(value, str | bool | Real | tuple | None):
        message = f"cannot compare {_show(value)}; allowed: a number, a text, true or false"
        raise InputError(message)


def _contained(item: object, container: object) -> bool:
    _check_comparable(item)
    if isinstance(container, tuple | list):
        listed = isinstance(item, tuple)
        like = [one for one in container if isinstance(one, tuple | list) == listed]
        return _answer(like, item, operator.contains)
    if isinstance(container, str) and isinstance(item, str):
        return item in container
    message = f"'in' needs a list, or a text in a text; got {_show(item)} in {_show(container)}"
    raise InputError(message)


def _is_number(value: object) -> TypeGuard[Real]:
    return type(value) is not bool and isinstance(value, Real)


def _show(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python cannot format integers of more than 4,300 digits
        text = "too many digits"
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

_COMPARISONS: dict[type[ast.cmpop], Callable[[object, object], bool]] = {
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.In: _contained,
    ast.NotIn: lambda left, right: not _contained(left, right),
}

_BUILDERS: dict[type[ast.AST], Callable[..., Evaluate]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.BinOp: _arithmetic,
    ast.Compare: _comparison,
}
