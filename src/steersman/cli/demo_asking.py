"""Choosers that ask a service over HTTP, and tell it what came of every choice.

They stand where the policies stand in a replay within one process; the world does not notice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from steersman.features import FeatureMap
from steersman.store import encode
from steersman.systems.assistant import choosers
from steersman.systems.assistant.choosers import Drawn, Policies, Seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from steersman.client import Client
    from steersman.spec import DecisionPoint
    from steersman.systems.assistant.choosers import Chooser
    from steersman.systems.assistant.points import Points
    from steersman.wire import Decision

_TIMEOUT_MS = 6_000.0
"""The service may take a third of it to make a decision durable: hours, for a local disk."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer, for measuring.

    Attributes:
        point: the decision point.
        process: which service process answered.
        answered_at: seconds since 1970.
        took_ms: as the client saw it.
        update_seq: the state that decided.
        decision_id: its id.
        logged: whether it was durable when it was answered.
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
    """Several clients used in turn, and what was said.

    Attributes:
        clients: one for each service process.
        heard: every answer.
        told: ids of all events.
    """

    clients: Sequence[Client]
    heard: list[Heard] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def ask(self, spec: DecisionPoint, context: Mapping[str, Any], **asked: Any) -> Decision:
        """Return a decision of the next service process in turn.

        Args:
            spec: the decision point.
            context: what is known.
            **asked: for `Client.decide`.
        """
        process = len(self.heard) % len(self.clients)
        begun = time.perf_counter()
        decision = self.clients[process].decide(
            spec.skill, spec.decision, _declared(spec, context), timeout_ms=_TIMEOUT_MS, **asked
        )
        took_ms = 1000 * (time.perf_counter() - begun)
        seq, logged = decision.update_seq, decision.logged is True
        self.heard.append(
            Heard(spec.decision, process, time.time(), took_ms, seq, decision.decision_id, logged)
        )
        return decision

    def tell(self, decision: Decision, **event: Any) -> None:
        """Tell what came of a decision, through the next client in turn.

        Args:
            decision: the decision.
            **event: for `Client.task_result`.
        """
        client = self.clients[len(self.told) % len(self.clients)]
        self.told.append(client.task_result(decision, **event))


class Asking:
    """A decision point with fixed actions, decided by the service.

    Args:
        talk: the service.
        spec: the declared point.
    """

    reads_features: ClassVar[bool] = False

    def __init__(self, talk: Talk, spec: DecisionPoint) -> None:
        self._talk, self._spec = talk, spec
        self._features = FeatureMap(spec.context)
        self._last: Decision | None = None

    def choose(self, seen: Seen, rng: np.random.Generator) -> Drawn:
        """See `steersman.systems.assistant.choosers.Chooser.choose`.

        Args:
            seen: The decision.
            rng: Gives one uniform, which nobody uses: the service draws.

        Returns:
            The service's choice; it tells no scores and no uniform.
        """
        rng.random()
        self._last = self._talk.ask(self._spec, seen.context)
        x, _ = encode(self._spec, self._features, seen.context)
        return _drawn(self._last, seen, np.full(len(seen.eligible), np.nan), x)

    def learn(
        self, seen: Seen, drawn: Drawn, index: int, reward: float, outcomes: Mapping[str, float]
    ) -> None:
        """Tell what came of the last choice; the service makes the reward of it.

        Args:
            seen: The decision.
            drawn: What was drawn at it.
            index: Of the action drawn.
            reward: Not told.
            outcomes: What is told.
        """
        if self._last is not None:
            self._talk.tell(self._last, outcomes=outcomes)


class AskingWithCandidates:
    """A decision point with candidates of its own for each request, decided by the service.

    An answer carries no scores, and the route wants to know what the best tool promises. So the
    application keeps an estimate of its own: the same regression over the same outcomes.

    Args:
        talk: the service.
        spec: the declared point.
        estimate: learns what is told; only its scores are used.
    """

    reads_features: ClassVar[bool] = True

    def __init__(self, talk: Talk, spec: DecisionPoint, estimate: Chooser) -> None:
        self._talk, self._spec, self._estimate = talk, spec, estimate
        self._last: Decision | None = None

    def choose(self, seen: Seen, rng: np.random.Generator) -> Drawn:
        """See `Asking.choose`.

        Args:
            seen: The decision.
            rng: Gives one uniform.

        Returns:
            The service's choice, with the application's own estimates as scores.
        """
        estimated = self._estimate.choose(seen, rng)
        features = _features(seen, range(len(seen.eligible)))
        self._last = self._talk.ask(
            self._spec, seen.context, eligible=seen.eligible, features=features
        )
        index = seen.eligible.index(self._last.action)
        x = np.asarray(seen.features)[index]
        return _drawn(self._last, seen, estimated.scores, x)

    def learn(
        self, seen: Seen, drawn: Drawn, index: int, reward: float, outcomes: Mapping[str, float]
    ) -> None:
        """Tell what came of the last choice, or of the tool that was used instead.

        What was used without being chosen is a decision too: with one eligible action, of
        probability one. The one that was passed over is told so, and leaves learning and evidence.

        Args:
            seen: The decision.
            drawn: What was drawn at it.
            index: The tool that was used.
            reward: For the estimate.
            outcomes: What is told.
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
    """Return the assistant's choosers over a service that serves its points.

    Args:
        talk: the service.
        points: as they were declared to it.

    Returns:
        A set by the name "learned".
    """
    estimate = choosers.learned(points).tool
    return Policies(
        "learned",
        Asking(talk, points.cache),
        Asking(talk, points.route),
        AskingWithCandidates(talk, points.tool, estimate),
    )


def _drawn(decision: Decision, seen: Seen, scores: Any, x: Any) -> Drawn:
    probabilities = [decision.distribution.get(name, 0.0) for name in seen.eligible]
    index = seen.eligible.index(decision.action)
    return Drawn(index, np.array(probabilities), scores, np.nan, x)


def _features(seen: Seen, places: Sequence[int] | range) -> dict[str, list[float]]:
    rows = np.asarray(seen.features)
    return {seen.eligible[place]: rows[place].tolist() for place in places}


def _declared(spec: DecisionPoint, context: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in context.items()
        if name in spec.context.fields
    }
