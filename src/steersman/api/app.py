"""ASGI application with one dispatcher for all routes.

The dispatcher matches the route, checks the key and the scope, asks the load guard and awaits the
handler. Every refusal is a `Refused` exception; one place turns it into an answer. The order
matters: a request without a valid key learns nothing, and a shed request costs no work.
"""

from __future__ import annotations

import logging
import os
import re
import time
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.api.authentication import authorize
from steersman.platform.http.messages import Answer, ClientGone, Request, problem_answer
from steersman.platform.telemetry.tracing import parse_traceparent
from steersman.wire import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from steersman.api.authentication import Authenticator
    from steersman.platform.telemetry.tracing import Tracing
    from steersman.serving.load_guard import Guard
    from steersman.serving.metrics import Metrics

_log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class Route(NamedTuple):
    """Handler and rules of one method of one path.

    Attributes:
        path: declared path; variable parts are in braces, for example ``{id}``.
        handler: function that answers.
        scope: required scope of the key; None: no key needed.
        sheds: name of the route in the load guard (`guard.SHEDS`); None: never refused.
        traced: whether spans are recorded.
    """

    path: str
    handler: Callable[[Request], Awaitable[Answer]]
    scope: str | None = None
    sheds: str | None = None
    traced: bool = False


class Application:
    """ASGI 3 application.

    Args:
        routes: all routes as (method, route).
        keys: authenticator of API keys.
        guard: load guard.
        metrics: counters.
        tracing: recorder of spans.
        clock: monotonic clock in seconds.
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

        Raises:
            NotImplementedError: for lifespan and websockets; servers treat this as unsupported.
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
        """Return all routes as (method, path)."""
        every = [*self._exact.values(), *(methods for _, methods in self._shaped)]
        return [(method, it.path) for methods in every for method, it in methods.items()]

    def allowed(self, path: str) -> str:
        """Return the methods of a path in the format of the header ``Allow``."""
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
