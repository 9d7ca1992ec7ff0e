"""Chooser of the interrogator that asks a learning service over HTTP."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from steersman.cli.options import run
from steersman.cli.running_service import served
from steersman.client import Client
from steersman.db.decisions import DecisionRow, log_decisions
from steersman.db.packed_events import EventRow, log_events
from steersman.db.points import points_of
from steersman.errors import StoreError
from steersman.features import FeatureMap
from steersman.platform.postgres.database import as_tenant
from steersman.points.feature_encoding import encode
from steersman.wire import canonical_hash, new_id
from steersman_systems.assistant.demo.service import wait_for_learner
from steersman_systems.interrogator.choosers import Choice, Heuristic
from steersman_systems.interrogator.point import point_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from steersman.cli.running_service import Served
    from steersman.client import Decision
    from steersman.db.points import PointRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.spec.point import DecisionPoint
    from steersman_systems.interrogator.state import Situation
    from steersman_systems.interrogator.step_log import StepLog

_TIMEOUT_MS = 6_000.0
_PATIENCE_S = 60.0
_BATCH = 1_000


class ServiceChooser:
    """A `Chooser` that asks the service; without an answer it uses the heuristic's question.

    The client marks such a fallback as degraded. It has propensity 1, and the learner skips it. The
    client delivers its record when the service is reachable again.

    Attributes:
        asked: Every decision, in order.
        unanswered: Number of fallbacks among them.
    """

    def __init__(self, client: Client, point: DecisionPoint) -> None:
        self._client, self._point = client, point
        self._heuristic = Heuristic()
        self._episode = ""
        self.asked: list[Decision] = []
        self.unanswered = 0

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """Return the service's question; ``rng`` is only used for the heuristic."""
        default = self._heuristic.choose(situation, rng).action
        if situation.step == 0:
            self._episode = f"investigation-{uuid4().hex}"
        context = plain(situation.context())
        decision = self._client.decide(
            self._point.skill,
            self._point.decision,
            context,
            eligible=situation.eligible,
            episode=self._episode,
            default=default,
            timeout_ms=_TIMEOUT_MS,
        )
        self.asked.append(decision)
        told = [decision.distribution.get(name, 0.0) for name in situation.questions.names]
        by = str(self._point.policy.algorithm)
        if decision.degraded:
            self.unanswered += 1
            by = "heuristic" if decision.action == default else "fallback"
        return Choice(decision.action, decision.propensity, np.array(told), by)

    def learn(self, situation: Situation, drawn: Choice, outcomes: Mapping[str, float]) -> None:
        """Report the outcomes of the last question; the service computes the reward and learns."""
        self._client.task_result(self.asked[-1], outcomes=outcomes)


@dataclass(frozen=True, slots=True)
class RunningService:
    """Service with the interrogator's decision point.

    Attributes:
        imported: Number of logged steps learned at the start.
        seconds: Time this took.
    """

    service: Served
    client: Client
    imported: int
    seconds: float = field(default=0.0)

    def learned(self) -> None:
        """Wait until all delivered events are learned.

        Raises:
            StoreError: Timeout after a minute.
        """
        if left := self.client.flush(_PATIENCE_S):
            raise StoreError(f"{left} events were not delivered in {_PATIENCE_S:g} s")
        wait_for_learner(self.service)


@contextmanager
def serving(
    home: Path | None,
    log: StepLog | None,
    vectors: NDArray[Any],
    *,
    say: Callable[[str], None],
    name: str | None = None,
    patience_s: float = 600.0,
) -> Iterator[RunningService]:
    """Run store, service and learner for a block, with a warm start from a log.

    Args:
        home: Directory of the store; None: a temporary directory.
        log: Imported at the start; None: no warm start.
        name: Name of the tenant; None: a new tenant.
        patience_s: Timeout for learning the log, in seconds.

    Raises:
        StoreError: The service does not start, or does not learn in time.
    """
    begun = time.monotonic()
    with ExitStack() as exits:
        if home is None:
            # A short path: socket paths are limited to about 100 characters.
            home = Path(exits.enter_context(TemporaryDirectory(prefix="steersman-")))

        def before(database: Database, tenant: Tenant) -> None:
            if log is not None:
                run(_import(database, tenant, log, vectors))

        tenant = name or f"demo-{uuid4().hex[:12]}"
        service = exits.enter_context(
            served(home, tenant, [point_document()], processes=1, say=say, before=before)
        )
        queue = home / f"queue-{tenant}"
        client = exits.enter_context(Client(service.urls[0], service.key, queue_dir=queue))
        wait_for_learner(service, patience_s)
        steps = 0 if log is None else len(log)
        yield RunningService(service, client, steps, time.monotonic() - begun)


def plain(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return a context as JSON values.

    >>> plain({"target": np.array([0.5]), "step": 1})
    {'target': [0.5], 'step': 1}
    """
    return {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in context.items()
    }


async def _import(database: Database, tenant: Tenant, log: StepLog, vectors: NDArray[Any]) -> None:
    """Write a log as imported decisions and events.

    The log drew its questions with equal probability among the eligible ones. So the propensities
    are exact, and the rows serve as evidence as well as a warm start.
    """
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            (point,) = await points_of(connection, tenant.id)
        rows = list(_rows(point, log, vectors))
        for begin in range(0, len(rows), _BATCH):
            part = rows[begin : begin + _BATCH]
            await log_decisions(connection, [decision for decision, _ in part])
            await log_events(connection, [event for _, event in part])
    finally:
        await connection.close()


def _rows(
    point: PointRow, log: StepLog, vectors: NDArray[Any]
) -> Iterator[tuple[DecisionRow, EventRow]]:
    spec, features = point.spec, FeatureMap(point.spec.context)
    names = [str(name) for name in log.names]
    masks, now = log.eligible_mask(), time.time()
    source = uuid4().hex
    for i, context, action in zip(count(), log.contexts(vectors), log.actions, strict=False):
        given = plain(context)
        x, _ = encode(spec, features, given)
        mask = masks[i]
        # In the original order, all before now.
        at = now - (len(log) - i) * 0.001
        decision = _decision(
            point,
            at,
            episode=f"log-{source}-{log.session[i]}",
            context=given,
            eligible=[name for name, may in zip(names, mask, strict=True) if may],
            distribution=(mask / mask.sum()).tolist(),
            action=action,
            p=float(log.propensity[i]),
            x=[] if x is None else x.tolist(),
        )
        outcomes = {"similarity_gain": float(log.gain[i]), "cache_miss": float(log.missed[i])}
        yield decision, _event(decision, outcomes)


def _decision(point: PointRow, at: float, **known: Any) -> DecisionRow:
    moment = datetime.fromtimestamp(at, UTC)
    return DecisionRow(
        tenant=point.tenant,
        id=new_id(at),
        skill=point.skill,
        point=point.point,
        snapshot="imported",
        spec_hash=point.spec_hash,
        feature_hash=point.feature_hash,
        p_kind="imported",
        at=moment,
        window_ends=moment + timedelta(seconds=point.spec.reward.window_s),
        **known,
    )


def _event(row: DecisionRow, outcomes: dict[str, float]) -> EventRow:
    identifier = f"log-{row.id}"
    return EventRow(
        tenant=row.tenant,
        id=identifier,
        decision=row.id,
        episode=None,
        type="task_result",
        schema_version=1,
        at=row.at,
        received_at=row.at,
        outcomes=outcomes,
        action_taken=None,
        body=None,
        body_hash=canonical_hash({"event_id": identifier, "outcomes": outcomes}),
        traceparent=None,
    )
