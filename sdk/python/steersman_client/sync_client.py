# Generated from async_client.py by `python -m tools.unasync`; edit that file.
"""Client of a Steersman service. `sync_client` is generated from `async_client`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from steersman_client import outbox
from steersman_client.base import Base
from steersman_client.events import event_of
from steersman_client.exchange import Send, Wait
from steersman_client.requests import Ask
from steersman_client.sender import CLOSE_S
from steersman_client.sync_http import SyncTransport
from steersman_client.sync_io import in_thread, sleep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from uuid import UUID

    from steersman_client.base import Options
    from steersman_client.errors import ServiceError
    from steersman_client.exchange import Steps
    from steersman_client.items import Backlog, RefusedItem
    from steersman_client.messages import Decision

T = TypeVar("T")


class Client(Base):
    """Client of a Steersman service: requests decisions and reports outcomes.

    `Client` is for threads; `AsyncClient` has the same methods as coroutines. Reports are on disk
    before a method returns, and a background thread delivers them, so they survive the process.
    Threads may share a `Client`. One event loop after another may use an `AsyncClient`
    (``asyncio.run`` twice), but not two at once. After `os.fork` both sides may go on.

    Args:
        base_url: http(s)://host[:port][/prefix]; None: environment variable STEERSMAN_URL.
        api_key: API key; None: environment variable STEERSMAN_API_KEY. Never logged, stored or
            shown.
        options: the following options, as keywords.
        timeout_ms: timeout of a call with all its tries in milliseconds, 1 to 600,000; default
            2,000.
        retries: number of tries after the first, with jittered pauses, 0 to 100; default 3.
        queue_dir: folder of the queue on disk; None: STEERSMAN_HOME/client, or
            ~/.local/state/steersman/client. Processes with the same service, key and folder share
            one queue.
        queue_bytes: maximum size of the queue, 256 KiB or more; default 64 MiB.
        drop: behaviour when the queue is full. ``never`` (default): a method raises QueueFullError;
            ``oldest``: the oldest rows are dropped, counted in `backlog` and logged.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base_url, api_key, **options)
        self._transport = SyncTransport(self._settings.base_url, self._settings.api_key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def decide(
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
        """Request one decision.

        Args:
            skill: skill of the decision point.
            decision: name of the decision point.
            context: context by declared field name; JSON values.
            eligible: eligible actions; None: all declared actions.
            features: list of numbers per eligible action, if the point declares features.
            episode: episode of the decision (a conversation, a task).
            unit: unit that stays on one arm of a rollout: user, session, episode.
            default: action if no service answers. The decision is then ``degraded`` and is
                delivered later, so that events about it are known.
            timeout_ms: timeout of this call in milliseconds; default: the client's.
            parent: decision that this one follows.
            links: for a sequence, the candidates that a pick adds, by candidate; they need features
                too. The ``default`` of a sequence is a list of picks.

        Returns:
            Decision; ``decision_id`` names it permanently.

        Raises:
            UnavailableError: no answer in time, and no ``default``.
            UnauthorizedError: invalid API key.
            NotFoundError: unknown skill or decision point.
            ServiceError: the service refuses the request; ``problem`` has the reason.
            InputError: a value cannot be sent as JSON.
        """
        ask = Ask(
            *(skill, decision, context or {}, eligible, features, episode, unit, default, parent),
            links,
        )
        return self._run(self._core.decide(ask, self._timeout_s(timeout_ms)))

    def decide_many(
        self, asks: Sequence[Ask], *, timeout_ms: float | None = None
    ) -> list[Decision | ServiceError]:
        """Request several decisions.

        Args:
            asks: 1 to 1,000 requests, sent as one batch.
            timeout_ms: timeout of this call in milliseconds; default: the client's.

        Returns:
            Decision or error for each request, in order. Errors are returned, not raised, so that
            one invalid request does not affect the others.

        Raises:
            ServiceError: the service refuses the whole batch.
            InputError: a value cannot be sent as JSON.
        """
        return self._run(self._core.decide_many(asks, self._timeout_s(timeout_ms)))

    def log_interaction(
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
        """Report the start of an interaction or its output.

        Args:
            decision: decision of the event; give either it or the episode.
            episode: episode of the event.
            outcomes: named finite numbers, such as ``{"latency_ms": 310}``.
            body: other content, up to 64 KiB as JSON.
            output: True: output of the interaction; False: its start.
            action_taken: action that the application took, if not the decided one.
            at: time, as seconds since 1970 or a datetime; None: now.
            event_id: event id of the application. Events with the same id, body and ``at`` are
                stored once. Give ``at`` too; otherwise a second call is a different event and is
                refused.

        Returns:
            Event id, after the event is on disk; it is delivered in the background.

        Raises:
            InputError: the service would refuse the event.
            QueueFullError: the queue is full, and ``drop`` is ``never``.
            QueueError: the queue cannot be written.
        """
        kind: Any = "interaction.output" if output else "interaction.create"
        return self._tell(kind, decision, episode, outcomes, action_taken, body, at, event_id)

    def submit_feedback(
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
        """Report user feedback.

        Args:
            decision: decision of the event; give either it or the episode.
            episode: episode of the event.
            outcomes: named finite numbers, such as ``{"thumbs_up": 1}``.
            body: other content, up to 64 KiB as JSON.
            action_taken: action that the application took, if not the decided one.
            at: time, as seconds since 1970 or a datetime; None: now.
            event_id: event id of the application. Events with the same id, body and ``at`` are
                stored once. Give ``at`` too; otherwise a second call is a different event and is
                refused.

        Returns:
            Event id, after the event is on disk; it is delivered in the background.
        """
        return self._tell(
            "feedback.submit", decision, episode, outcomes, action_taken, body, at, event_id
        )

    def task_result(
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
        """Report the result of a task.

        Args:
            decision: decision of the event; give either it or the episode.
            episode: episode of the event.
            outcomes: named finite numbers, such as ``{"success": 1}``.
            body: other content, up to 64 KiB as JSON.
            action_taken: action that the application took, if not the decided one.
            at: time, as seconds since 1970 or a datetime; None: now.
            event_id: event id of the application. Events with the same id, body and ``at`` are
                stored once. Give ``at`` too; otherwise a second call is a different event and is
                refused.

        Returns:
            Event id, after the event is on disk; it is delivered in the background.
        """
        return self._tell(
            "task_result", decision, episode, outcomes, action_taken, body, at, event_id
        )

    def explain(
        self,
        decision: Decision | UUID | str,
        *,
        recompute: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, Any]:
        """Return the service's explanation of a decision.

        Args:
            decision: the decision or its id.
            recompute: whether to rebuild the policy state and compare its distribution; this takes
                time.
            timeout_ms: timeout of this call in milliseconds; default: the client's.

        Returns:
            Probabilities, policy state, events and rewards of the decision.
        """
        explanation: dict[str, Any] = self._run(
            self._core.explain(decision, self._timeout_s(timeout_ms), recompute=recompute)
        )
        return explanation

    def ping(self, *, timeout_ms: float | None = None) -> bool:
        """Return whether the service is alive.

        Args:
            timeout_ms: timeout of this call in milliseconds; default: the client's.
        """
        return self._run(self._core.ping(self._timeout_s(timeout_ms)))

    def flush(self, timeout_s: float = 5.0) -> int:
        """Wait until all reports are delivered.

        Args:
            timeout_s: maximum wait in seconds.

        Returns:
            Number of rows left in the queue, of all processes that share it.
        """
        return self._run(self._core.flush(timeout_s))

    def backlog(self) -> Backlog:
        """Return the counts of the queue on disk, of all processes that share it."""
        return in_thread(self._core.outbox.backlog)

    def refused(self) -> list[RefusedItem]:
        """Return the last refused items, at most 1,000, oldest first.

        Older ones are dropped if the queue needs their space.
        """
        return in_thread(self._core.outbox.refused)

    def close(self) -> None:
        """Deliver for up to a second, then release all resources."""
        if not self._begins_to_close():
            return
        try:
            if not in_thread(self._core.outbox.is_empty):
                self.flush(outbox.EXIT_S - CLOSE_S)
        finally:
            self._closed = True
            in_thread(outbox.give_back, self._settings)
            self._transport.close()

    def _tell(self, *event: Any) -> str:
        return self._run(self._core.report(event_of(*event, now=time.time())))

    def _run(self, steps: Steps[T]) -> T:
        self._check_open()
        heard: Any = None
        try:
            while True:
                step = steps.send(heard)
                heard = None
                if isinstance(step, Send):
                    heard = self._transport.send(step)
                elif isinstance(step, Wait):
                    sleep(step.seconds)
                else:
                    heard = in_thread(step.work)
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            steps.close()
