"""Traffic that goes on after the demo's order of arrivals: visitors of one decision point.

What visitors know and what their requests are worth is taken from the decisions that were just
replayed; whether a route answers a request is drawn with the probability that the world knows.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import urllib3

from steersman.errors import StoreError
from steersman.systems.assistant.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from steersman.systems.assistant.consequences import Consequences
    from steersman.systems.assistant.log import Log

_AT_ONCE = 25


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that may come again.

    Attributes:
        context: what the decision knows.
        right: probability that each route answers it.
        came: outcomes of each route, if it is wrong and if it is right.
    """

    context: Mapping[str, Any]
    right: tuple[float, ...]
    came: tuple[tuple[Mapping[str, float], Mapping[str, float]], ...]


def visits_of(log: Log, consequences: Consequences) -> list[Visit]:
    """Return the requests of a replayed order whose route was decided.

    Args:
        log: with its decisions.
        consequences: of the same world.
    """
    visits = []
    for decision in log.of("route"):
        request = log.answered[decision.arrival].request
        guardian = str(decision.seen.context["guardian_state"])
        chances, came = [], []
        for route, worth in zip(ROUTES, decision.seen.truth(), strict=True):
            wrong, right = (
                consequences.routed(request, guardian, route, right=right)
                for right in (False, True)
            )
            chances.append(float((worth - wrong.route) / (right.route - wrong.route)))
            came.append((wrong.outcomes, right.outcomes))
        visits.append(Visit(decision.seen.context, tuple(chances), tuple(came)))
    return visits


@dataclass(slots=True)
class Traffic:
    """Visitors, each asking once, at a steady pace, over all service processes in turn.

    Attributes:
        urls: of the service processes.
        key: of the tenant.
        visits: what they ask.
        rng: draws who comes, and whether a route answers.
        per_s: visitors in a second.
        asked: how many came.
        arms: how many each arm of each snapshot answered.
    """

    urls: Sequence[str]
    key: str
    visits: Sequence[Visit]
    rng: np.random.Generator
    per_s: float = 400.0
    asked: int = 0
    arms: dict[tuple[str, str], int] = field(default_factory=dict)
    _http: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(maxsize=4))
    _due: float = 0.0

    def go_on(self) -> None:
        """Let the next few come, when it is their time, and tell what came of it."""
        now = time.monotonic()
        if self._due > now:
            time.sleep(self._due - now)
        self._due = max(self._due, now - 1.0) + _AT_ONCE / self.per_s
        url = self.urls[(self.asked // _AT_ONCE) % len(self.urls)]
        coming = [
            self.visits[place] for place in self.rng.integers(len(self.visits), size=_AT_ONCE)
        ]
        asking = [
            {
                "skill": "assistant",
                "decision": "route",
                "context": visit.context,
                "unit": f"visitor-{self.asked + place}",
                "deadline_ms": 5000,
            }
            for place, visit in enumerate(coming)
        ]
        answers = self._post(url, "/v1/decide", {"requests": asking})["decisions"]
        events = [
            self._event(visit, answer)
            for visit, answer in zip(coming, answers, strict=True)
            if "problem" not in answer
        ]
        self._post(url, "/v1/events", {"events": events})
        self.asked += _AT_ONCE

    def _event(self, visit: Visit, answer: Mapping[str, Any]) -> dict[str, Any]:
        who = str(answer["snapshot"]), str(answer["arm"])
        self.arms[who] = self.arms.get(who, 0) + 1
        route = ROUTES.index(answer["action"])
        outcomes = visit.came[route][int(self.rng.random() < visit.right[route])]
        identifier = answer["decision_id"]
        return {
            "event_id": f"visit-{identifier}",
            "decision_id": identifier,
            "type": "task_result",
            "outcomes": dict(outcomes),
        }

    def _post(self, url: str, path: str, body: Mapping[str, Any]) -> Any:
        answer = self._http.request(
            "POST",
            url + path,
            body=json.dumps(body).encode(),
            headers={
                "authorization": f"Bearer {self.key}",
                "content-type": "application/json",
            },
            timeout=30.0,
        )
        if answer.status != 200:
            raise StoreError(f"{url}{path} answered {answer.status}: {answer.data[:300]!r}")
        return json.loads(answer.data)
