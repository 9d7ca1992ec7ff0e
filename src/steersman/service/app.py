"""The HTTP interface as an ASGI application: one dispatch for every route.

A request is matched, its key checked, its scope compared, its handler awaited; whatever refuses on
the way raises `Refused`, and one place makes the answer. The order matters: who has no key learns
nothing but that, and what the guard sheds costs no work.
"""

from __future__ import annotations

import logging
import os
import re
import time
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.service.auth import authorize
from steersman.service.http import Answer, ClientGone, Request, problem_answer
from steersman.service.tracing import parse_traceparent
from steersman.wire import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from steersman.service.auth import Authenticator
    from steersman.service.guard import Guard
    from steersman.service.metrics import Metrics
    from steersman.service.tracing import Tracing

_log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class Route(NamedTuple):
    """What one method of one path does.

    Attributes:
        path: as it is declared; variable parts stand in braces, such as ``{id}``.
        handler: answers.
        scope: which the key must have; None: no key is asked for.
        sheds: what the guard calls it (`guard.SHEDS`); None: never refused.
        traced: whether spans are recorded.
    """

    path: str
    handler: Callable[[Request], Awaitable[Answer]]
    scope: str | None = None
    sheds: str | None = None
    traced: bool = False


class Application:
    """Answers requests; an ASGI 3 application.

    Args:
        routes: all there are: (method, route).
        keys: knows the API keys.
        guard: says what is shed now.
        metrics: counts.
        tracing: records spans.
        clock: seconds that never step back.
    """

    def __init__(
        self,
        routes: Sequence[tuple[str, Route]],
        *,
        keys: Authenticator,
        guard: Guard,
        metrics: Metrics,
        tracing: Tracing,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._shaped: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        self._keys = keys
        self._guard = guard
        self._metrics = metrics
        self._tracing = tracing
        self._clock = clock
        self._numbers = count()
        self._prefix = os.urandom(5).hex()
        for path in dict.fromkeys(route.path for _, route in routes):
            self._add(path, {method: route for method, route in routes if route.path == path})

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one request.

        Args:
            scope: of ASGI; anything but HTTP is not served.
            receive: of ASGI.
            send: of ASGI.

        Raises:
            NotImplementedError: for lifespan and websockets, which servers take for "no".
        """
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        begun = self._clock()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = self._request_id(headers.get(b"x-request-id"))
        name = "unmatched"
        try:
            route, params = self._match(scope["method"], scope["path"])
            name = route.path
            request = Request(scope, receive, headers, params)
            request.request_id = request_id
            answer = await self._answer(route, request)
        except Refused as refused:
            answer = problem_answer(refused.problem, _allow(self, scope, refused.problem))
        except ClientGone:
            self._metrics.request(name, 499, self._clock() - begun)
            return
        except Exception:  # noqa: BLE001 (the caller gets an answer, the log gets the reason)
            _log.exception("request %s to %s failed", request_id, name)
            detail = f"unexpected error; report the request id {request_id} to the operator"
            answer = problem_answer(Problem.of("internal", detail))
        status, body, more = answer
        length = (b"content-length", b"%d" % len(body))
        start = {
            "type": "http.response.start",
            "status": status,
            "headers": [*more, length, (b"x-request-id", request_id.encode())],
        }
        await send(start)
        await send({"type": "http.response.body", "body": body})
        self._metrics.request(name, status, self._clock() - begun)

    async def _answer(self, route: Route, request: Request) -> Answer:
        if route.scope is not None:
            authorization = request.headers.get(b"authorization")
            key = self._keys.known(authorization)
            if key is None:
                key = await self._keys.find(authorization or b"")
            authorize(key, route.scope)
            request.key = key
        if route.sheds is not None and self._guard.state:
            self._guard.refuse(route.sheds)
        if not route.traced:
            return await route.handler(request)
        request.traceparent = parse_traceparent(request.headers.get(b"traceparent"))
        if not self._tracing.enabled:
            return await route.handler(request)
        with self._tracing.span(f"POST {route.path}", request.traceparent) as own:
            request.traceparent = own
            return await route.handler(request)

    def paths(self) -> list[tuple[str, str]]:
        """Return all methods and paths there are."""
        every = [*self._exact.values(), *(methods for _, methods in self._shaped)]
        return [(method, it.path) for methods in every for method, it in methods.items()]

    def allowed(self, path: str) -> str:
        """Return the methods that a path takes, as the header ``Allow`` wants them.

        Args:
            path: as it was asked for.
        """
        methods, _ = self._find(path)
        return ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))

    def _match(self, method: str, path: str) -> tuple[Route, tuple[str, ...]]:
        methods, params = self._find(path)
        if not methods:
            raise Refused.of("not_found", "path not found; /openapi.json lists all paths")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            detail = f"method {method[:20]!r} not allowed; allowed: {self.allowed(path)}"
            raise Refused.of("method_not_allowed", detail)
        return route, params

    def _find(self, path: str) -> tuple[dict[str, Route], tuple[str, ...]]:
        methods = self._exact.get(path)
        if methods is not None:
            return methods, ()
        for shape, methods in self._shaped:
            match = shape.fullmatch(path)
            if match is not None:
                return methods, match.groups()
        return {}, ()

    def _add(self, path: str, methods: dict[str, Route]) -> None:
        if "{" in path:
            shape = re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(path))
            self._shaped.append((re.compile(shape), methods))
        else:
            self._exact[path] = methods

    def _request_id(self, wanted: bytes | None) -> str:
        if wanted is not None and _REQUEST_ID.fullmatch(wanted):
            return wanted.decode()
        return f"{self._prefix}-{next(self._numbers)}"


def _allow(
    app: Application, scope: Mapping[str, Any], problem: Problem
) -> tuple[tuple[bytes, bytes], ...]:
    if problem.status != 405:
        return ()
    return ((b"allow", app.allowed(scope["path"]).encode()),)
