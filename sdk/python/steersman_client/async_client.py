"""Client for event loops: aiohttp and `asyncio.sleep` around the common core."""

# ruff: noqa: D102 (the methods' words are those of `Client`, copied by the decorator)

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from steersman_client import outbox
from steersman_client.base import Base
from steersman_client.events import event_of
from steersman_client.exchange import Send, Wait
from steersman_client.requests import Ask
from steersman_client.sender import CLOSE_S
from steersman_client.sync_client import Client
from steersman_client.transports import AiohttpTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from uuid import UUID

    from steersman.errors import ServiceError
    from steersman.wire import Decision
    from steersman_client.base import Options
    from steersman_client.exchange import Steps
    from steersman_client.items import Backlog, RefusedItem

T = TypeVar("T")
C = TypeVar("C", bound=type)


def _documented_as_in(model: type) -> Callable[[C], C]:
    """Copy missing docstrings of methods from ``model``."""

    def document(described: C) -> C:
        for name, method in vars(described).items():
            if not name.startswith("_") and method.__doc__ is None:
                method.__doc__ = getattr(model, name).__doc__
        return described

    return document


@_documented_as_in(Client)
class AsyncClient(Base):
    """Client for asyncio with the methods of `Client` as coroutines.

    It may be used by one event loop after another (``asyncio.run`` twice), but not by two at once.
    A thread
    writes events to disk, and another one delivers them.

    Args:
        base_url: URL of the service; all arguments are as in `Client`.
        api_key: API key; never logged, stored or shown.
        options: the following options, as keywords.
        timeout_ms: timeout of a call with all its tries, in milliseconds.
        retries: number of tries after the first.
        queue_dir: folder of the queue on disk.
        queue_bytes: maximum size of the queue in bytes.
        drop: ``never`` or ``oldest``, for a full queue.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base_url, api_key, **options)
        self._transport = AiohttpTransport(self._settings.base_url, self._settings.api_key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def decide(
        self,
        skill: str,
        decision: str,
        context: Mapping[str, Any] | None = None,
        *,
        eligible: Sequence[str] | None = None,
        features: Mapping[str, Sequence[float]] | None = None,
        episode: str | None = None,
        unit: str | None = None,
        default: str | Sequence[str] | None = None,
        timeout_ms: float | None = None,
        parent: Decision | UUID | str | None = None,
        links: Mapping[str, Sequence[str]] | None = None,
    ) -> Decision:
        ask = Ask(
            *(skill, decision, context or {}, eligible, features, episode, unit, default, parent),
            links,
        )
        return await self._run(self._core.decide(ask, self._timeout_s(timeout_ms)))

    async def decide_many(
        self, asks: Sequence[Ask], *, timeout_ms: float | None = None
    ) -> list[Decision | ServiceError]:
        return await self._run(self._core.decide_many(asks, self._timeout_s(timeout_ms)))

    async def log_interaction(
        self,
        decision: Decision | UUID | str | None = None,
        *,
        episode: str | None = None,
        outcomes: Mapping[str, float] | None = None,
        body: Mapping[str, Any] | None = None,
        output: bool = False,
        action_taken: str | None = None,
        at: float | datetime | None = None,
        event_id: str | None = None,
    ) -> str:
        kind: Any = "interaction.output" if output else "interaction.create"
        return await self._tell(kind, decision, episode, outcomes, action_taken, body, at, event_id)

    async def submit_feedback(
        self,
        decision: Decision | UUID | str | None = None,
        *,
        episode: str | None = None,
        outcomes: Mapping[str, float] | None = None,
        body: Mapping[str, Any] | None = None,
        action_taken: str | None = None,
        at: float | datetime | None = None,
        event_id: str | None = None,
    ) -> str:
        return await self._tell(
            "feedback.submit", decision, episode, outcomes, action_taken, body, at, event_id
        )

    async def task_result(
        self,
        decision: Decision | UUID | str | None = None,
        *,
        episode: str | None = None,
        outcomes: Mapping[str, float] | None = None,
        body: Mapping[str, Any] | None = None,
        action_taken: str | None = None,
        at: float | datetime | None = None,
        event_id: str | None = None,
    ) -> str:
        return await self._tell(
            "task_result", decision, episode, outcomes, action_taken, body, at, event_id
        )

    async def explain(
        self,
        decision: Decision | UUID | str,
        *,
        recompute: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, Any]:
        explanation: dict[str, Any] = await self._run(
            self._core.explain(decision, self._timeout_s(timeout_ms), recompute=recompute)
        )
        return explanation

    async def ping(self, *, timeout_ms: float | None = None) -> bool:
        return await self._run(self._core.ping(self._timeout_s(timeout_ms)))

    async def flush(self, timeout_s: float = 5.0) -> int:
        return await self._run(self._core.flush(timeout_s))

    async def backlog(self) -> Backlog:
        return await asyncio.to_thread(self._core.outbox.backlog)

    async def refused(self) -> list[RefusedItem]:
        return await asyncio.to_thread(self._core.outbox.refused)

    async def close(self) -> None:
        if not self._begins_to_close():
            return
        try:
            if not await asyncio.to_thread(self._core.outbox.is_empty):
                await self.flush(outbox.EXIT_S - CLOSE_S)
        finally:
            self._closed = True
            await asyncio.to_thread(outbox.give_back, self._settings)
            await self._transport.close()

    async def _tell(self, *event: Any) -> str:
        return await self._run(self._core.report(event_of(*event, now=time.time())))

    async def _run(self, steps: Steps[T]) -> T:
        self._check_open()
        heard: Any = None
        try:
            while True:
                step = steps.send(heard)
                heard = None
                if isinstance(step, Send):
                    heard = await self._transport.send(step)
                elif isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                else:
                    heard = await asyncio.to_thread(step.work)
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            steps.close()
