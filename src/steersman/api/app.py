"""ASGI application: one dispatcher for all routes.

Starlette matches the paths, runs the lifespan, and sends streams and files. A dictionary finds the
raw routes, decide and events. For every request the dispatcher then checks the key and the scope,
asks the load guard and awaits the handler. Every refusal is a `Refused` exception; one place turns
it into an answer. The order matters: a request without a valid key learns nothing, and a shed
request costs no work.
"""

from __future__ import annotations

import logging
import os
import re
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from starlette import routing
from starlette.responses import Response, StreamingResponse

from steersman.api.authentication import authorize
from steersman.api.route import read_query
from steersman.platform.http.messages import (
    Answer,
    ClientGone,
    Request,
    converted,
    json_answer,
    problem_answer,
    read_json,
)
from steersman.platform.telemetry.tracing import parse_traceparent
from steersman.wire import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from steersman.api.authentication import Authenticator
    from steersman.api.route import Handler, Route
    from steersman.platform.telemetry.tracing import Tracing
    from steersman.serving.load_guard import Guard
    from steersman.serving.metrics import Metrics

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Methods = Mapping[str, tuple[Route, Handler]]

_log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class Application:
    """ASGI 3 application.

    Args:
        routes: all routes with their handlers.
        keys: authenticator of API keys.
        guard: load guard.
        metrics: counters.
        tracing: recorder of spans.
        lifespan: returns a context that the server holds while it answers requests.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self,
        routes: Sequence[tuple[Route, Handler]],
        *,
        keys: Authenticator,
        guard: Guard,
        metrics: Metrics,
        tracing: Tracing,
        lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._keys = keys
        self._guard = guard
        self._metrics = metrics
        self._tracing = tracing
        self._clock = clock
        self._numbers = count()
        self._prefix = os.urandom(5).hex()
        self._routes = [route for route, _ in routes]
        self._raw: dict[str, Methods] = {}
        paths = []
        # Fixed paths first: Starlette takes the first path that matches.
        paths_of = dict.fromkeys(route.path for route in self._routes)
        for path in sorted(paths_of, key=lambda it: "{" in it):
            methods = {it[0].method: it for it in routes if it[0].path == path}
            if any(route.raw for route, _ in methods.values()):
                self._raw[path] = methods
            else:
                paths.append(_whole(routing.Route(path, _Endpoint(self, methods))))
        self._router = routing.Router(
            paths, redirect_slashes=False, default=_Endpoint(self, {}), lifespan=lifespan
        )

    def __call__(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> Awaitable[None]:
        """Answer one request, or run the lifespan.

        Raises:
            NotImplementedError: for websockets; servers treat this as unsupported.
        """
        if scope["type"] == "http":
            methods = self._raw.get(scope["path"])
            if methods is not None:
                return self.respond(methods, scope, receive, send)
        elif scope["type"] != "lifespan":
            raise NotImplementedError(scope["type"])
        return self._router(scope, receive, send)

    async def respond(
        self, methods: Methods, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """Answer a request; without methods the path is unknown."""
        begun = self._clock()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = self._request_id(headers.get(b"x-request-id"))
        name = "unmatched"
        try:
            route, handler = _choose(methods, scope["method"])
            name = route.path
            request = Request(scope, receive, headers, route)
            request.request_id = request_id
            answer = await self._answer(handler, request)
        except Refused as refused:
            allow = ((b"allow", _allowed(methods).encode()),)
            answer = problem_answer(refused.problem, allow if refused.problem.status == 405 else ())
        except ClientGone:
            self._metrics.request(name, 499, self._clock() - begun)
            return
        except Exception:  # noqa: BLE001 (the caller gets an answer, the log gets the reason)
            _log.exception("request %s to %s failed", request_id, name)
            detail = f"unexpected error; report the request id {request_id} to the operator"
            answer = problem_answer(Problem.of("internal", detail))
        if isinstance(answer, Answer):
            status, body, more = answer
            length = (b"content-length", b"%d" % len(body))
            start = {
                "type": "http.response.start",
                "status": status,
                "headers": [*more, length, (b"x-request-id", request_id.encode())],
            }
            await send(start)
            await send({"type": "http.response.body", "body": body})
        else:
            status = await _send(answer, scope, receive, send, request_id, name)
        self._metrics.request(name, status, self._clock() - begun)

    async def _answer(self, handler: Handler, request: Request) -> Answer | Response:
        route: Route = request.route
        if route.scope is not None:
            authorization = request.headers.get(b"authorization")
            key = self._keys.known(authorization)
            if key is None:
                key = await self._keys.find(authorization or b"")
            authorize(key, route.scope)
            request.key = key
        if route.sheds is not None and self._guard.state:
            self._guard.refuse(route.sheds)
        handled = handler if route.raw else partial(_handled, handler)
        if not route.traced:
            return await handled(request)
        request.traceparent = parse_traceparent(request.headers.get(b"traceparent"))
        if not self._tracing.enabled:
            return await handled(request)
        with self._tracing.span(f"{route.method} {route.path}", request.traceparent) as own:
            request.traceparent = own
            return await handled(request)

    def paths(self) -> list[tuple[str, str]]:
        """Return the described routes as (method, path)."""
        return [(route.method, route.path) for route in self._routes if not route.hidden]

    def _request_id(self, wanted: bytes | None) -> str:
        if wanted is not None and _REQUEST_ID.fullmatch(wanted):
            return wanted.decode()
        return f"{self._prefix}-{next(self._numbers)}"


def _whole(path: routing.Route) -> routing.Route:
    """Match a path to its end; Starlette's ``$`` also matches before a final newline."""
    path.path_regex = re.compile(path.path_regex.pattern.removesuffix("$") + r"\Z")
    return path


class _Endpoint:
    """ASGI application of one path; Starlette wraps functions, but not objects."""

    def __init__(self, app: Application, methods: Methods) -> None:
        self._app = app
        self._methods = methods

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await self._app.respond(self._methods, scope, receive, send)


async def _handled(handler: Handler, request: Request) -> Answer | Response:
    """Return a handler's answer; it gets the query and the body that its route declares."""
    route: Route = request.route
    arguments = []
    if route.query is not None:
        arguments.append(read_query(request.scope["query_string"], route.query))
    if route.body is not None:
        arguments.append(converted(await read_json(request, route.limit), route.body))
    result = await handler(request, *arguments)
    if isinstance(result, Answer | Response):
        return result
    return json_answer(result, route.status)


async def _send(
    response: Response,
    scope: MutableMapping[str, Any],
    receive: Receive,
    send: Send,
    request_id: str,
    name: str,
) -> int:
    """Send a stream or a file and return its status; 500 after an error."""
    status = response.status_code

    async def send_noted(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            # Starlette may answer in place of `response`: 206, 400 or 416 to a Range header.
            status = message["status"]
            headers = [*message["headers"], (b"x-request-id", request_id.encode())]
            message = {**message, "headers": headers}
        await send(message)

    stream: Any = response.body_iterator if isinstance(response, StreamingResponse) else None
    try:
        if stream is None or scope["method"] != "HEAD":
            await response(scope, receive, send_noted)
        else:
            head = {"status": response.status_code, "headers": response.raw_headers}
            await send_noted({"type": "http.response.start", **head})
            await send({"type": "http.response.body"})
    except Exception:  # noqa: BLE001 (the head may be sent; the server closes the connection)
        _log.exception("the answer of request %s to %s broke off", request_id, name)
        return 500
    finally:
        if stream is not None:
            await stream.aclose()  # after a disconnect the generator is still suspended
    return status


def _choose(methods: Methods, method: str) -> tuple[Route, Handler]:
    if not methods:
        raise Refused.of("not_found", "path not found; /openapi.json lists all paths")
    found = methods.get("GET" if method == "HEAD" else method)
    if found is None:
        detail = f"method {method[:20]!r} not allowed; allowed: {_allowed(methods)}"
        raise Refused.of("method_not_allowed", detail)
    return found


def _allowed(methods: Methods) -> str:
    """Return the value of the header ``Allow``."""
    return ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
