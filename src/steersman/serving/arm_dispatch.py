"""Draws of requests: by control, by a rollout's candidate for its units, or by the fallback.

An exception of the candidate never affects its unit: control draws instead, the row records it, and
it is counted and logged. When no policy can answer, the declared fallback does.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from steersman.serving.arms import unit_of
from steersman.serving.draw import draw_many, fall_back
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    import numpy as np

    from steersman.db.group_commit import GroupCommit
    from steersman.serving.arms import Arms, Turn
    from steersman.serving.draw import ServedPoint
    from steersman.serving.pending_decision import Drawn, PendingDecision, PointRequest

    OnArm: TypeAlias = Callable[[str, str, str, str, float], None]

_log = logging.getLogger(__name__)


class ArmDispatch:
    """Draws requests with the policy that serves their units.

    Args:
        commits: group commit of the rows; while its store is down, the fallback answers.
        guardian: returns the load guard's state; in LOCKDOWN the fallback answers.
        rng: random generator.
        on_fallback: callback with the reason of each fallback answer.
        on_arm: callback for each draw during a rollout, as `Metrics.arm`.
    """

    def __init__(
        self,
        commits: GroupCommit[Any, Any],
        *,
        guardian: Callable[[], str],
        rng: np.random.Generator,
        on_fallback: Callable[[str], None],
        on_arm: OnArm,
    ) -> None:
        self._commits = commits
        self._guardian = guardian
        self._rng = rng
        self._on_fallback = on_fallback
        self._on_arm = on_arm

    def draw(self, asked: Sequence[PointRequest], identifiers: Sequence[UUID]) -> list[Drawn]:
        """Return the draws of requests of one point with a rollout, or of points without one.

        Args:
            identifiers: decision ids; a request without unit and episode is its own unit.

        Raises:
            Refused: the fallback needs a first candidate, and a request has none.
        """
        arms = asked[0].served.arms
        if arms is None or self._guardian() == "LOCKDOWN" or not self._commits.available:
            return self._control(asked)
        turns = [
            arms.turn(unit_of(one.request, identifier))
            for one, identifier in zip(asked, identifiers, strict=True)
        ]
        drawn, errors = self._candidate(arms, asked, turns)
        rest = [n for n in range(len(asked)) if n not in drawn]
        begun = time.perf_counter()
        results = self._control([asked[n] for n in rest]) if rest else []
        seconds = (time.perf_counter() - begun) / max(1, len(rest))
        for n, result in zip(rest, results, strict=True):
            drawn[n] = result
            if isinstance(result, Exception):
                continue
            result.label, result.arm = turns[n].fallen, turns[n].arm
            if result.arm == "control":
                answered = "failed" if result.degraded else "ok"
                self._on_arm(arms.row.skill, arms.row.point, "control", answered, seconds)
            elif asked[n].request.eligible != []:
                self._count_missed(arms, errors.get(n))
        return [drawn[n] for n in range(len(asked))]

    def _candidate(
        self,
        arms: Arms[ServedPoint],
        asked: Sequence[PointRequest],
        turns: Sequence[Turn[ServedPoint]],
    ) -> tuple[dict[int, Drawn], dict[int, Exception]]:
        """Return the candidate's draws and errors by position."""
        drawn: dict[int, Drawn] = {}
        errors: dict[int, Exception] = {}
        own = [n for n, turn in enumerate(turns) if turn.served is not None]
        candidate = arms.candidate
        if not own or candidate is None:
            return drawn, errors
        begun = time.perf_counter()
        results = draw_many([(candidate, asked[n]) for n in own], self._rng)
        seconds = (time.perf_counter() - begun) / len(own)
        for n, result in zip(own, results, strict=True):
            if isinstance(result, Exception):
                errors[n] = result
            elif not result.degraded:  # else no action was eligible, and control answers the same
                result.label, result.arm = turns[n].label, "candidate"
                drawn[n] = result
                self._on_arm(arms.row.skill, arms.row.point, "candidate", "ok", seconds)
        return drawn, errors

    def _count_missed(self, arms: Arms[ServedPoint], error: Exception | None) -> None:
        """Count a draw that control took over; log the 1st, 2nd, 4th, 8th and so on."""
        row = arms.row
        result = "fallback" if error is None else "failed"
        self._on_arm(row.skill, row.point, "candidate", result, 0.0)
        arms.failures += 1
        if arms.failures & (arms.failures - 1) == 0:
            why = "it is not loaded" if error is None else repr(error)
            message = "control draws for candidate %s of %s/%s, %d times so far: %s"
            _log.error(message, row.candidate, row.skill, row.point, arms.failures, why)

    def _control(self, asked: Sequence[PointRequest]) -> list[Drawn]:
        """Return the draws of control or of the fallback."""
        if self._guardian() == "LOCKDOWN":
            return [self._fall_back(one, "lockdown", stored=False) for one in asked]
        # With an empty queue, one decision passes as a probe of the store.
        through = len(asked) if self._commits.available else int(self._commits.depth == 0)
        pairs = [(one.served, one) for one in asked[:through]]
        results: list[Drawn] = []
        for one, drawn in zip(asked, draw_many(pairs, self._rng), strict=False):
            if isinstance(drawn, Exception) and not isinstance(drawn, Refused):
                skill, point = one.request.skill, one.request.decision
                _log.error("%s/%s uses the fallback: %r", skill, point, drawn)
                results.append(self._fall_back(one, "policy"))
                continue
            if not isinstance(drawn, Exception) and drawn.degraded:  # no action was eligible
                self._on_fallback("eligible")
            results.append(drawn)
        return results + [self._fall_back(one, "store", stored=False) for one in asked[through:]]

    def _fall_back(
        self, asked: PointRequest, reason: str, *, stored: bool = True
    ) -> PendingDecision:
        self._on_fallback(reason)
        decision = fall_back(asked.served, asked)
        decision.stored = stored
        return decision
