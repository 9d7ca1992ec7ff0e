"""Health, readiness and metrics endpoints."""

from __future__ import annotations

import hmac
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from steersman.api.route import Route, handles
from steersman.platform.http.messages import Answer, problem_answer
from steersman.platform.telemetry.exposition import CONTENT_TYPE, render
from steersman.wire import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.api.service import Service
    from steersman.platform.http.messages import Request
    from steersman.platform.telemetry.exposition import Exchange
    from steersman.serving.metrics import Metrics

_LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})


class Health:
    """Handlers of the routes for operators.

    Args:
        reasons: returns why the service is not ready; empty if it is ready.
        metrics: metrics of this process.
        exchange: metrics of the other processes on the port; None: single process.
        metrics_token: token for remote metrics requests; None: local requests only.
        beside: folder with the metrics of background workers, such as the controller.
    """

    def __init__(
        self,
        reasons: Callable[[], Awaitable[list[str]]],
        metrics: Metrics,
        exchange: Exchange | None = None,
        metrics_token: str | None = None,
        beside: Exchange | None = None,
    ) -> None:
        self._reasons = reasons
        self._metrics = metrics
        self._exchange = exchange
        self._token = metrics_token
        self._beside = beside

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        return cls(
            service.reasons,
            service.metrics,
            service.exchange,
            service.settings.metrics_token,
            service.beside,
        )

    @handles(Route("GET", "/healthz", "Check whether this process is alive", {"alive": bool}))
    async def alive(self, _: Request) -> dict[str, bool]:
        """Return 200."""
        return {"alive": True}

    @handles(
        Route("GET", "/readyz", "Check whether this process is ready for requests", {"ready": bool})
    )
    async def ready(self, _: Request) -> Answer | dict[str, bool]:
        """Return 200, or 503 with the reasons."""
        reasons = await self._reasons()
        if reasons:
            detail = f"not ready: {'; '.join(reasons)}"
            return problem_answer(Problem.of("unavailable", detail, retry_after_s=1.0))
        return {"ready": True}

    @handles(
        Route(
            "GET",
            "/metrics",
            "Get the metrics; remote callers need the metrics token",
            str,
            codes=("unauthorized",),
            media="text/plain",
        )
    )
    async def metrics(self, request: Request) -> Answer:
        """Return Prometheus' text format, locally or with the token."""
        self._check_reader(request)
        own, families = "0", self._metrics.families()
        found = {} if self._beside is None else self._beside.others()
        if self._exchange is not None:
            # Written before the answer: another process must not report an older count next, which
            # Prometheus would read as a restart. A full disk is the exception.
            with suppress(OSError):
                self._exchange.leave(families)
            own, found = self._exchange.own, {**found, **self._exchange.others()}
        text = render({own: families, **found})
        return Answer(200, text, ((b"content-type", CONTENT_TYPE),))

    def _check_reader(self, request: Request) -> None:
        client = request.scope.get("client")
        # Requests through a local proxy count as remote.
        if client and client[0] in _LOOPBACK and _FORWARDED.isdisjoint(request.headers):
            return
        shown = request.headers.get(b"authorization", b"")
        if self._token and hmac.compare_digest(shown, f"Bearer {self._token}".encode()):
            return
        detail = "remote requests for metrics need `Authorization: Bearer $STEERSMAN_METRICS_TOKEN`"
        raise Refused.of("unauthorized", detail)
