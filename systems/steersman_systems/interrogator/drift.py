"""Drift guard: switches to the heuristic if gains or contexts differ from the log.

The requirement uses the covariance of the posterior. That shrinks with every observation, so it
cannot show drift. This guard watches for gains below the expectation of the log, and for contexts
that are not in the log. Only losses count: larger gains or more cache hits do not.
"""

from __future__ import annotations

import logging
from collections import Counter
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.points.feature_encoding import rounded
from steersman.stats import asymptotic_confidence_sequence
from steersman_systems.interrogator.drift_reference import Reference, excursion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.spec.point import DecisionPoint
    from steersman_systems.interrogator.choosers import Choice, Chooser
    from steersman_systems.interrogator.state import Situation
    from steersman_systems.interrogator.step_log import StepLog

    Floats = NDArray[np.float64]

FIRST_LOOK = 50
"""Sessions before the first test of the world, so that means are nearly normal as in
`steersman.stats.asymptotic_confidence_sequence`."""
_SLACK = 3.0
_log = logging.getLogger(__name__)


class DriftGuard:
    """Drift tests within a session and across sessions.

    Two sequential tests, each valid at every step:

    * **Within a session**, at every step, three monitors: the standardised loss of gains against
      expectation so far, the Mahalanobis distance of x along the log's principal directions, and
      its distance orthogonal to them. They fire in at most ``alpha`` (of the reference) of the
      sessions without drift. An alarm ends with the session.
    * **Across sessions**, in one process: a confidence sequence of the sessions' mean residuals.
      The session is the unit, because its steps are dependent. It fires if the mean is below zero,
      falsely in at most ``world_alpha`` of windows of ``window`` sessions, asymptotically. The
      bound has three additional standard errors of the log's mean, and uses the larger of the
      log's and the sessions' variance. A full window is emptied. After an alarm the heuristic asks
      in the next ``rest`` sessions; then a new window begins.

    Both rates assume uniform choices, like the log's. For choices of a policy they are only
    measured, and hold approximately (see `Reference.fit`).

    Limit: it does not detect a change in the law of x that keeps distances, principal directions
    and gains.

    Args:
        reference: Expected gains and contexts.
        window: Number of sessions after which the test of the world restarts, ≥ 50.
        rest: Number of sessions with the heuristic after drift of the world, ≥ 1.
        world_alpha: Probability of a false alarm in a window, in (0, 0.5].

    Attributes:
        reason: Reason for the heuristic in the current session; ``None``: no drift.
        fired: Number of alarms by monitor; an alarm of ``world`` counts once.

    Raises:
        InputError: an argument out of range.
    """

    def __init__(
        self,
        reference: Reference,
        *,
        window: int = 200,
        rest: int = 50,
        world_alpha: float = 0.01,
    ) -> None:
        if window < FIRST_LOOK or rest < 1 or not 0.0 < world_alpha <= 0.5:
            message = f"window {window}, rest {rest}, world_alpha {world_alpha}"
            allowed = f"window >= {FIRST_LOOK}, rest >= 1, 0 < world_alpha <= 0.5"
            raise InputError(f"{message}; allowed: {allowed}")
        self._reference = reference
        self._window, self._rest, self._world_alpha = window, rest, world_alpha
        self.reason: str | None = None
        self.fired: Counter[str] = Counter()
        self._resting = 0
        self._units: list[float] = []
        self._residuals: list[float] = []

    @classmethod
    def of_log(
        cls, point: DecisionPoint, log: StepLog, vectors: Any, *, rng: np.random.Generator
    ) -> Self:
        """Return a guard with the expectations of a log.

        Raises:
            InputError: The log has too few sessions.
        """
        reference = Reference.fit(
            log.encoded(vectors, FeatureMap(point.context)),
            log.template.astype(np.int64),
            log.gain,
            log.session.astype(np.int64),
            log.target.astype(np.int64),
            questions=len(log.names),
            rng=rng,
        )
        return cls(reference)

    def begin(self) -> None:
        """Start a session, and add the previous one to the test across sessions."""
        self._close()
        self.reason = None
        if self._resting:
            self._resting -= 1
            self.reason = "world: the last sessions gained less than the log lets expect"

    def see(self, x: Floats) -> str | None:
        """Check a context before a question is chosen.

        Returns:
            Reason to use the heuristic in this session; ``None``: no drift.
        """
        if self.reason is None:
            near, beside = (float(one[0]) for one in self._reference.distances(x))
            for name, value in (("features", near), ("strangeness", beside)):
                self._check(name, value, "the context is not like the log's")
        return self.reason

    def hear(self, x: Floats, action: int, gain: float) -> str | None:
        """Check the gain of a question; not called for the heuristic's questions.

        Returns:
            Reason to use the heuristic from now on; ``None``: no drift.
        """
        residual = self._reference.residual(x, action, gain)
        if self.reason is None and residual is not None:
            heard = [*self._residuals, residual]
            value = excursion(np.array(heard)) if isfinite(residual) else nan
            self._check("gains", value, "gains stay below what the log lets expect")
            if isfinite(residual):  # infinite and NaN values have fired, and must not enter a mean
                self._residuals = heard
        return self.reason

    def reset(self) -> None:
        """Reset the test across sessions, for example after retraining the policy."""
        self._units, self._residuals, self._resting, self.reason = [], [], 0, None

    def _check(self, name: str, value: float, what: str) -> None:
        limit = self._reference.limits[name]
        if self.reason is None and not value <= limit:  # NaN fires too
            self.reason = f"{name}: {what} ({value:.3g}, at most {limit:.3g})"
            self.fired[name] += 1
            _log.warning("the heuristic asks for the rest of this session; %s", self.reason)

    def _close(self) -> None:
        if not self._residuals:
            return
        self._units.append(float(np.mean(self._residuals)))
        self._residuals = []
        n = len(self._units)
        if n >= FIRST_LOOK and self._world_drifted(n):
            self.fired["world"] += 1
            self._units, self._resting = [], self._rest
            _log.warning("the heuristic asks for the next %d sessions: the world drifted",
                         self._rest)  # fmt: skip
        elif n >= self._window:
            self._units = []

    def _world_drifted(self, n: int) -> bool:
        spread = max(self._reference.unit_spread, float(np.std(self._units)))
        _, high = asymptotic_confidence_sequence(
            float(np.mean(self._units)),
            spread**2,
            n,
            level=1.0 - self._world_alpha,
            n_star=self._window // 2,
        )
        slack = _SLACK * self._reference.unit_spread / self._reference.sessions**0.5
        return bool(high < -slack)


class GuardedChooser:
    """Chooser with a fallback for the rest of a session after drift.

    Questions of the fallback have propensity 1 and its name. The chooser does not learn from them,
    and they are not used as evidence.

    Args:
        chooser: Chooser without drift.
        fallback: Chooser after drift, such as the `Heuristic`.
        guard: The drift guard.
        point: Decision point, for encoding contexts.

    Attributes:
        taken_over: Reason by session number, for sessions with the fallback.
        questions: Number of questions asked by the fallback.
    """

    def __init__(
        self, chooser: Chooser, fallback: Chooser, guard: DriftGuard, point: DecisionPoint
    ) -> None:
        self._chooser, self._fallback, self._guard = chooser, fallback, guard
        self._encoder = FeatureMap(point.context)
        self._session = 0
        self.taken_over: dict[int, str] = {}
        self.questions = 0

    @property
    def reason(self) -> str | None:
        """Reason to use the fallback in the current session; ``None``: no drift."""
        return self._guard.reason

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """Return a question; a situation without asked questions starts a session."""
        if situation.step == 0:
            self._guard.begin()
            self._session += 1
        if reason := self._guard.see(self._encoded(situation)):
            self.taken_over.setdefault(self._session, reason)
            self.questions += 1
            return self._fallback.choose(situation, rng)
        return self._chooser.choose(situation, rng)

    def learn(self, situation: Situation, drawn: Choice, outcomes: Mapping[str, float]) -> None:
        """Learn from the outcomes; questions of the fallback are skipped."""
        if self._guard.reason is not None:
            return
        self._chooser.learn(situation, drawn, outcomes)
        place = situation.questions.names.index(drawn.action)
        self._guard.hear(self._encoded(situation), place, outcomes["similarity_gain"])

    def _encoded(self, situation: Situation) -> Floats:
        return rounded(self._encoder.encode(situation.context()))
