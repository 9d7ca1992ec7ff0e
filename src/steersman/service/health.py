"""Whether the service is alive and ready, and its metrics: for those who run it."""

from __future__ import annotations

import hmac
from contextlib import suppress
from typing import TYPE_CHECKING

from steersman.service.app import Route
from steersman.service.exposition import CONTENT_TYPE, render
from steersman.service.http import Answer, json_answer, problem_answer
from steersman.wire import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.service.exposition import Exchange
    from steersman.service.http import Request
    from steersman.service.metrics import Metrics

_LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})


class Health:
    """Handlers of the routes for operators.

    Args:
        reasons: returns why the service is not ready; nothing if it is.
        metrics: the counts of this process.
        exchange: those of the others on the same port; None: there are none.
        metrics_token: lets others than this machine read the metrics; None: nobody else may.
        beside: where what works beside the service, such as the controller, leaves its counts.
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

    def routes(self) -> list[tuple[str, Route]]:
        """Return the routes."""
        return [
            ("GET", Route("/healthz", self.alive)),
            ("GET", Route("/readyz", self.ready)),
            ("GET", Route("/metrics", self.metrics)),
        ]

    async def alive(self, _: Request) -> Answer:
        """Answer ``GET /healthz``: this process answers.

        Returns:
            Always 200.
        """
        return json_answer({"alive": True})

    async def ready(self, _: Request) -> Answer:
        """Answer ``GET /readyz``: whether requests should be sent here.

        Returns:
            200, or 503 with the reasons.
        """
        reasons = await self._reasons()
        if reasons:
            detail = f"not ready: {'; '.join(reasons)}"
            return problem_answer(Problem.of("unavailable", detail, retry_after_s=1.0))
        return json_answer({"ready": True})

    async def metrics(self, request: Request) -> Answer:
        """Answer ``GET /metrics``, to this machine or to who has the token.

        Args:
            request: without an API key.

        Returns:
            Prometheus' text format.
        """
        self._check_reader(request)
        own, families = "0", self._metrics.families()
        found = {} if self._beside is None else self._beside.others()
        if self._exchange is not None:
            # Left before it is told: the next to be asked must not tell an older count. Prometheus
            # would take that for a restart, and count everything once more. On a full disk it may.
            with suppress(OSError):
                self._exchange.leave(families)
            own, found = self._exchange.own, {**found, **self._exchange.others()}
        text = render({own: families, **found})
        return Answer(200, text, ((b"content-type", CONTENT_TYPE),))

    def _check_reader(self, request: Request) -> None:
        client = request.scope.get("client")
        # What a proxy on this machine hands on comes from elsewhere.
        if client and client[0] in _LOOPBACK and _FORWARDED.isdisjoint(request.headers):
            return
        shown = request.headers.get(b"authorization", b"")
        if self._token and hmac.compare_digest(shown, f"Bearer {self._token}".encode()):
            return
        detail = "remote requests for metrics need `Authorization: Bearer $STEERSMAN_METRICS_TOKEN`"
        raise Refused.of("unauthorized", detail)
