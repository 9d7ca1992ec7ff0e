"""Route table, the source of the router and the OpenAPI document.

A handler is a method of a noun's class and carries its routes. `declared` reads them from the
class, for the document; `bound` reads them from an instance, for the router.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec
from msgspec import inspect

from steersman.platform.http.messages import converted
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

Handler = Callable[..., Awaitable[Any]]
H = TypeVar("H", bound=Handler)
_MARK = "__routes__"
_UUIDS: Mapping[str, Any] = MappingProxyType({"id": UUID})


class Route(NamedTuple):
    """Method and path of a route with its protection, messages and description.

    The types `answer` and `body` are message types, Python types, or combinations of them: a tuple
    is one of several types, a list an array of one of several, a mapping an object with these
    fields.

    Attributes:
        method: HTTP method in upper case.
        path: declared path; variable parts are in braces, for example ``{id}``.
        summary: one-line summary.
        answer: type of a successful answer.
        scope: required scope of the key; None: no key needed.
        sheds: name of the route in the load guard (`load_guard.SHEDS`); None: never refused.
        traced: whether spans are recorded.
        body: type of the request body, which the handler gets as an argument; None: no body.
        limit: maximum size of the body in bytes.
        query: message type of the query parameters, which the handler gets as an argument.
        parts: types of the variable parts of the path by name.
        examples: example bodies by name.
        codes: problem codes in addition to those of every route of its kind.
        status: HTTP status of a successful answer.
        media: media type of a successful answer.
        raw: whether the handler reads the body and writes the `Answer` itself. The path has no
            variable parts, and is found without Starlette, which is faster.
        hidden: whether the OpenAPI document leaves it out.
        variant: name of the route for a handler of several routes.
    """

    method: str
    path: str
    summary: str
    answer: Any
    scope: str | None = None
    sheds: str | None = None
    traced: bool = False
    body: Any = None
    limit: int = 64 * 1024
    query: type[msgspec.Struct] | None = None
    parts: Mapping[str, Any] = _UUIDS
    examples: Mapping[str, Any] = MappingProxyType({})
    codes: tuple[str, ...] = ()
    status: int = 200
    media: str = "application/json"
    raw: bool = False
    hidden: bool = False
    variant: str = ""


def handles(*routes: Route) -> Callable[[H], H]:
    """Return a decorator that gives a handler its routes.

    >>> class Clock:
    ...     @handles(Route("GET", "/clock", "Get the time", {"at": float}))
    ...     async def now(self, request): ...
    >>> [route.path for route in declared(Clock)]
    ['/clock']
    """

    def mark(handler: H) -> H:
        setattr(handler, _MARK, routes)
        return handler

    return mark


def declared(noun: type[Any]) -> list[Route]:
    """Return the routes of a class of handlers."""
    return [route for member in vars(noun).values() for route in getattr(member, _MARK, ())]


def bound(noun: Any) -> list[tuple[Route, Handler]]:
    """Return the routes of an object with their handlers."""
    handlers = [getattr(noun, name) for name, it in vars(type(noun)).items() if hasattr(it, _MARK)]
    return [(route, handler) for handler in handlers for route in getattr(handler, _MARK)]


def read_query(query: bytes, kind: type[msgspec.Struct]) -> Any:
    """Return the query parameters as a message; unknown parameters are ignored.

    Args:
        query: query of the URL, as sent.
        kind: message type; a field of type list takes a parameter that is repeated.

    Raises:
        Refused: a value is missing, invalid or given twice.

    >>> Page = msgspec.defstruct("Page", [("limit", int, 20), ("tag", list[str], [])])
    >>> read_query(b"limit=5&tag=a&tag=b", Page)
    Page(limit=5, tag=['a', 'b'])
    """
    given: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        given[name].append(value)
    found = {
        name: _value(name, kinds, given[name])
        for name, kinds in _parameters(kind).items()
        if name in given
    }
    return converted(found, kind, strict=False)


@cache
def _parameters(kind: type[msgspec.Struct]) -> dict[str, tuple[type, ...]]:
    """Return the value types of each parameter."""
    return {
        field.encode_name: tuple(type(one) for one in getattr(field.type, "types", (field.type,)))
        for field in inspect.type_info(kind).fields  # type: ignore[attr-defined]
    }


def _value(name: str, kinds: tuple[type, ...], values: list[str]) -> Any:
    if inspect.ListType in kinds:
        return values
    flag = inspect.BoolType in kinds
    said = set(values)
    if len(said) > 1 or (flag and not said <= {"true", "false"}):
        shown = " and ".join(sorted(repr(value[:40]) for value in said)[:3])
        allowed = "true or false" if flag else "a single value"
        detail = f"invalid {name} {shown}: expected {allowed}; give one of them or leave it out"
        raise Refused.of("invalid", detail, field=name)
    return values[0]
