"""Simulated traffic of the demo during rollouts: visitors of one decision point.

Contexts and outcomes come from the replayed decisions. Whether a route answers a request is drawn
with its true probability.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import urllib3

from steersman.errors import StoreError
from steersman_systems.assistant.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from steersman_systems.assistant.consequences import Consequences
    from steersman_systems.assistant.log import Log

_AT_ONCE = 25


@dataclass(frozen=True, slots=True)
class Visit:
    """Request that may be repeated.

    Attributes:
        context: Context of the decision.
        right: Probability that each route answers it.
        came: Outcomes of each route, if it is wrong and if it is right.
    """

    context: Mapping[str, Any]
    right: tuple[float, ...]
    came: tuple[tuple[Mapping[str, float], Mapping[str, float]], ...]


def visits_of(log: Log, consequences: Consequences) -> list[Visit]:
    """Return the requests of a replayed order whose route was decided."""
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
    """Visitors at a steady rate, one request each, over all service processes in turn.

    Attributes:
        urls: One for each service process.
        key: API key of the tenant.
        visits: Requests to draw from.
        rng: Draws the visitors, and whether a route answers.
        per_s: Visitors per second.
        asked: Visitors so far.
        arms: Answers by snapshot and arm.
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
        """Send the next batch of requests when it is due, and report the outcomes."""
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
