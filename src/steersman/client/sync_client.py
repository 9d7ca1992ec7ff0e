"""The client for threads: urllib3 sends, `time.sleep` waits, the core decides."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from steersman.client import outbox
from steersman.client.asking import Ask
from steersman.client.base import Base
from steersman.client.exchange import Send, Wait
from steersman.client.reporting import event_of
from steersman.client.sender import CLOSE_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from uuid import UUID

    from steersman.client.base import Options
    from steersman.client.exchange import Steps
    from steersman.client.items import Backlog, RefusedItem
    from steersman.errors import ServiceError
    from steersman.wire import Decision

T = TypeVar("T")


class Client(Base):
    """Asks a Steersman service for decisions, and tells it what came of them.

    What is told is kept on disk before a method returns and delivered in the background, so it
    outlives the process. A client may be used from many threads, and after `os.fork` on both sides.

    Args:
        base_url: http(s)://host[:port][/prefix]; None: the environment's STEERSMAN_URL.
        api_key: None: the environment's STEERSMAN_API_KEY. Never logged, stored or shown.
        options: by keyword, one or more of the following.
        timeout_ms: for a whole call with all its tries, 1 to 600,000; default 2,000.
        retries: tries after the first, 0 to 100, with jittered pauses; default 3.
        queue_dir: the folder of the queue on disk; None: STEERSMAN_HOME/client, or
            ~/.local/state/steersman/client. Processes with the same service, key and folder share
            one queue.
        queue_bytes: the most it may take, 256 KiB or more; default 64 MiB.
        drop: when it is full: ``never`` (the default): a method raises QueueFullError;
            ``oldest``: the oldest rows are given up, counted in `backlog` and logged.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base_url, api_key, **options)
        self._transport = self._connect()

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
        """Return what to do now.

        Args:
            skill: the application capability.
            decision: the decision point within it.
            context: what is known, by declared field name; JSON values.
            eligible: the actions allowed for this request; None: all that are declared.
            features: one list of numbers per eligible action, where the point declares features.
            episode: what this decision belongs to with others (a conversation, a task).
            unit: what must stay on one arm of a rollout: user, session, episode.
            default: the action to take when no service answers: then the decision says
                ``degraded``, and is delivered later so that events about it are known.
            timeout_ms: for this call, instead of the client's.
            parent: the decision this one follows from.
            links: of a sequence: by candidate, the candidates that picking it brings in; they have
                features too. Its ``default`` is a list of picks.

        Returns:
            The decision; ``decision_id`` names it for ever.

        Raises:
            UnavailableError: no answer in time, and no ``default``.
            UnauthorizedError: the API key is not accepted.
            NotFoundError: no such skill or decision point.
            ServiceError: the service refuses the request; ``problem`` says why.
            InputError: something cannot be sent as JSON.
        """
        ask = Ask(
            *(skill, decision, context or {}, eligible, features, episode, unit, default, parent),
            links,
        )
        return self._run(self._core.decide(ask, self._timeout_s(timeout_ms)))

    def decide_many(
        self, asks: Sequence[Ask], *, timeout_ms: float | None = None
    ) -> list[Decision | ServiceError]:
        """Return a decision for each question, or the error that stands in its place.

        Args:
            asks: 1 to 1,000 questions, sent as one request.
            timeout_ms: for this call, instead of the client's.

        Returns:
            As many as were asked, in order. Errors are returned and not raised, so that one bad
            question does not cost the others their answer.

        Raises:
            ServiceError: the service refuses the request as a whole.
            InputError: something cannot be sent as JSON.
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
        """Tell what the application did: that an interaction began, or its output.

        Args:
            decision: what it is about ...
            episode: ... or the episode; exactly one of the two.
            outcomes: named finite numbers, such as ``{"latency_ms": 310}``.
            body: anything else worth keeping, up to 64 KiB as JSON.
            output: True: the interaction's output; False: its beginning.
            action_taken: what was done, if not the action decided.
            at: when, seconds since 1970 or a datetime; None: now.
            event_id: the application's own; the same id, body and ``at`` are stored once. Give
                ``at`` with it: without, a second call is another event under the same id, and
                refused.

        Returns:
            The event's id, once the event is on disk; it is delivered in the background.

        Raises:
            InputError: the service would refuse it.
            QueueFullError: the queue has no room, and ``drop`` is ``never``.
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
        """Tell what somebody thought of it.

        Args:
            decision: what it is about ...
            episode: ... or the episode; exactly one of the two.
            outcomes: named finite numbers, such as ``{"thumbs_up": 1}``.
            body: anything else worth keeping, up to 64 KiB as JSON.
            action_taken: what was done, if not the action decided.
            at: when, seconds since 1970 or a datetime; None: now.
            event_id: the application's own; the same id, body and ``at`` are stored once. Give
                ``at`` with it: without, a second call is another event under the same id, and
                refused.

        Returns:
            The event's id, once the event is on disk; it is delivered in the background.
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
        """Tell how the task ended.

        Args:
            decision: what it is about ...
            episode: ... or the episode; exactly one of the two.
            outcomes: named finite numbers, such as ``{"success": 1}``.
            body: anything else worth keeping, up to 64 KiB as JSON.
            action_taken: what was done, if not the action decided.
            at: when, seconds since 1970 or a datetime; None: now.
            event_id: the application's own; the same id, body and ``at`` are stored once. Give
                ``at`` with it: without, a second call is another event under the same id, and
                refused.

        Returns:
            The event's id, once the event is on disk; it is delivered in the background.
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
        """Return how a decision came about, as the service tells it.

        Args:
            decision: the decision or its id.
            recompute: also build the state it was drawn from again, and compare: this takes time.
            timeout_ms: for this call, instead of the client's.

        Returns:
            Scores, probabilities, the state it was drawn from, and what happened since.
        """
        explanation: dict[str, Any] = self._run(
            self._core.explain(decision, self._timeout_s(timeout_ms), recompute=recompute)
        )
        return explanation

    def ping(self, *, timeout_ms: float | None = None) -> bool:
        """Return whether the service is alive.

        Args:
            timeout_ms: for this call, instead of the client's.
        """
        return self._run(self._core.ping(self._timeout_s(timeout_ms)))

    def flush(self, timeout_s: float = 5.0) -> int:
        """Wait until everything told was delivered.

        Args:
            timeout_s: the longest to wait.

        Returns:
            How many rows are left in the queue, of all processes that share it.
        """
        return self._run(self._core.flush(timeout_s))

    def backlog(self) -> Backlog:
        """Return what is in the queue on disk, whichever process put it there."""
        return self._core.outbox.backlog()

    def refused(self) -> list[RefusedItem]:
        """Return the last 1,000 items that the service refused for good, oldest first.

        They are fewer where the queue needed their room for what is to be delivered.
        """
        return self._core.outbox.refused()

    def close(self) -> None:
        """Deliver what can be delivered in a second, and let go of everything else."""
        if not self._begins_to_close():
            return
        try:
            if not self._core.outbox.is_empty():
                self.flush(outbox.EXIT_S - CLOSE_S)
        finally:
            self._closed = True
            outbox.give_back(self._settings)
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
                    time.sleep(step.seconds)
                else:
                    heard = step.work()
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            steps.close()
