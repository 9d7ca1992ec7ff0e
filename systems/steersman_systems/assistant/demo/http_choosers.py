"""Choosers that ask a service over HTTP and report the outcomes to it.

They replace the policies of an in-process replay.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from steersman.features import FeatureMap
from steersman.points.feature_encoding import encode
from steersman_systems.assistant import choosers
from steersman_systems.assistant.choosers import Choice, ChooserInput, Policies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from steersman.client import Client, Decision
    from steersman.spec.point import DecisionPoint
    from steersman_systems.assistant.choosers import Chooser
    from steersman_systems.assistant.points import Points

_TIMEOUT_MS = 6_000.0
"""The service may use a third of it to commit a decision."""


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """Measurements of one answer.

    Attributes:
        process: Index of the service process that answered.
        answered_at: Seconds since 1970.
        took_ms: Latency at the client.
        update_seq: Update number of the policy state that decided.
        logged: True if the decision was committed before the answer.
    """

    point: str
    process: int
    answered_at: float
    took_ms: float
    update_seq: int
    decision_id: UUID
    logged: bool


@dataclass(slots=True)
class Talk:
    """Clients used in turn, with the answers and events of a run.

    Attributes:
        clients: One for each service process.
        heard: Every answer.
        told: Ids of all events.
    """

    clients: Sequence[Client]
    heard: list[ServiceAnswer] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def ask(self, spec: DecisionPoint, context: Mapping[str, Any], **asked: Any) -> Decision:
        """Return a decision of the next service process; ``asked`` goes to `Client.decide`."""
        process = len(self.heard) % len(self.clients)
        begun = time.perf_counter()
        decision = self.clients[process].decide(
            spec.skill, spec.decision, _declared(spec, context), timeout_ms=_TIMEOUT_MS, **asked
        )
        took_ms = 1000 * (time.perf_counter() - begun)
        seq, logged = decision.update_seq, decision.logged is True
        self.heard.append(
            ServiceAnswer(
                spec.decision, process, time.time(), took_ms, seq, decision.decision_id, logged
            )
        )
        return decision

    def tell(self, decision: Decision, **event: Any) -> None:
        """Report an event through the next client; ``event`` goes to `Client.task_result`."""
        client = self.clients[len(self.told) % len(self.clients)]
        self.told.append(client.task_result(decision, **event))


class ServiceChooser:
    """Chooser for a decision point with fixed actions, decided by the service."""

    reads_features: ClassVar[bool] = False

    def __init__(self, talk: Talk, spec: DecisionPoint) -> None:
        self._talk, self._spec = talk, spec
        self._features = FeatureMap(spec.context)
        self._last: Decision | None = None

    def choose(self, seen: ChooserInput, rng: np.random.Generator) -> Choice:
        """Return the service's choice, without scores and random number."""
        rng.random()  # keeps the random numbers in step; the service draws the action
        self._last = self._talk.ask(self._spec, seen.context)
        x, _ = encode(self._spec, self._features, seen.context)
        return _drawn(self._last, seen, np.full(len(seen.eligible), np.nan), x)

    def learn(
        self,
        seen: ChooserInput,
        drawn: Choice,
        index: int,
        reward: float,
        outcomes: Mapping[str, float],
    ) -> None:
        """Report the outcomes of the last choice; the service computes the reward."""
        if self._last is not None:
            self._talk.tell(self._last, outcomes=outcomes)


class ServiceCandidateChooser:
    """Chooser for a decision point with candidates per request, decided by the service.

    An answer has no scores, but the context of the route needs the best tool's score. So the
    application fits the same regression to the same outcomes.

    Args:
        estimate: Learns the reported outcomes; only its scores are used.
    """

    reads_features: ClassVar[bool] = True

    def __init__(self, talk: Talk, spec: DecisionPoint, estimate: Chooser) -> None:
        self._talk, self._spec, self._estimate = talk, spec, estimate
        self._last: Decision | None = None

    def choose(self, seen: ChooserInput, rng: np.random.Generator) -> Choice:
        """Return the service's choice, with the application's estimates as scores."""
        estimated = self._estimate.choose(seen, rng)
        features = _features(seen, range(len(seen.eligible)))
        self._last = self._talk.ask(
            self._spec, seen.context, eligible=seen.eligible, features=features
        )
        index = seen.eligible.index(self._last.action)
        x = np.asarray(seen.features)[index]
        return _drawn(self._last, seen, estimated.scores, x)

    def learn(
        self,
        seen: ChooserInput,
        drawn: Choice,
        index: int,
        reward: float,
        outcomes: Mapping[str, float],
    ) -> None:
        """Report the outcomes of the last choice, or of the tool that was used instead.

        A tool used without being chosen is a decision with one eligible action and probability 1.
        The replaced decision is reported as not taken; learning and evidence skip it.
        """
        self._estimate.learn(seen, drawn, index, reward, outcomes)
        if self._last is None:
            return
        used = self._last
        if index != drawn.index:
            name = seen.eligible[index]
            self._talk.tell(self._last, action_taken=name)
            used = self._talk.ask(
                self._spec, seen.context, eligible=[name], features=_features(seen, [index])
            )
        self._talk.tell(used, outcomes=outcomes)


def asking(talk: Talk, points: Points) -> Policies:
    """Return the assistant's choosers over a service that serves its points."""
    estimate = choosers.learned(points).tool
    return Policies(
        "learned",
        ServiceChooser(talk, points.cache),
        ServiceChooser(talk, points.route),
        ServiceCandidateChooser(talk, points.tool, estimate),
    )


def _drawn(decision: Decision, seen: ChooserInput, scores: Any, x: Any) -> Choice:
    probabilities = [decision.distribution.get(name, 0.0) for name in seen.eligible]
    index = seen.eligible.index(decision.action)
    return Choice(index, np.array(probabilities), scores, np.nan, x)


def _features(seen: ChooserInput, places: Sequence[int] | range) -> dict[str, list[float]]:
    rows = np.asarray(seen.features)
    return {seen.eligible[place]: rows[place].tolist() for place in places}


def _declared(spec: DecisionPoint, context: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in context.items()
        if name in spec.context.fields
    }
