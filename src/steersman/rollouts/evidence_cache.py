"""Memory of a controller about one rollout, kept between its turns.

It is not stored. A controller that takes over reads the log from the beginning and gets the same
numbers. Only outcomes that were reported after their window had been read can differ.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from steersman.db.derived_snapshots import hold_view
from steersman.db.verdicts import latest_verdict
from steersman.errors import SteersmanError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.candidate import candidate_of
from steersman.rollouts.candidate_evidence import Shadow, logged_choices, off_policy, shadow
from steersman.rollouts.error_budget import stretches
from steersman.rollouts.evidence import Evidence
from steersman.rollouts.plan import RolloutPlan
from steersman.rollouts.unit_outcomes import ReadPosition, last_decision_at, observe, shadowed
from steersman.rollouts.units import Units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.verdicts import VerdictRow
    from steersman.learning.replica import Bases
    from steersman.rollouts.candidate import Candidate
    from steersman.rollouts.evidence import OffPolicyEvidence, SourceEvidence
    from steersman.rollouts.trusted_clock import ClockReading

_MOST_SHADOWED = 20_000  # at least; the plan may require more


class Paces(Protocol):
    """Protocol of the intervals in `ControllerSettings`."""

    @property
    def keep_s(self) -> float:
        """Time after which an unchanged verdict is stored again."""

    @property
    def settle_s(self) -> float:
        """Delay after a window's end before its decision counts."""

    @property
    def evidence_s(self) -> float:
        """Interval of off-policy evaluation while it is not enough."""

    @property
    def reload_s(self) -> float:
        """Interval for verifying the candidate."""


class EvidenceMemory:
    """Memory about one rollout.

    Args:
        row: claimed rollout.
        bases: verifier of the candidate.
        paces: intervals.
    """

    def __init__(self, row: RolloutRow, bases: Bases, paces: Paces) -> None:
        self.plan = RolloutPlan.from_json(row.plan)
        self.stretches = stretches(self.plan.budget)
        self.trouble = ""
        self.verdict: VerdictRow | None = None
        self._point = row.tenant, row.skill, row.point
        self._bases = bases
        self._paces = paces
        self._units = Units(self.plan)
        self._gathering = ReadPosition()
        self._shadowing = ReadPosition()
        self._shadow = Shadow()
        self._misplaced = 0
        self._behind = False
        self._last_at: datetime | None = None
        self._candidate: Candidate | None = None
        self._off_policy: OffPolicyEvidence | None = None
        self._asking: asyncio.Task[OffPolicyEvidence] | None = None
        self._asked_at: float | None = None
        self._loaded_at: float | None = None
        self._step: int | None = None
        self._elapsed_s = 0.0

    async def prepare(self, connection: Any, row: RolloutRow, moment: ClockReading) -> None:
        """Verify the candidate and evaluate the log, without locks."""
        self._elapsed_s += moment.passed_s
        if self._step is None:
            async with as_tenant(connection, row.tenant):
                self.verdict = await latest_verdict(connection, row.tenant, row.id)
            self._elapsed_s = self._known_elapsed(row, moment.now)
            self._step = row.step
        await self._verify(connection, row, moment.now)
        if row.stage == "shadow":
            await self._ask_the_log(connection, moment.now)
            await self._watch_shadow(connection, row, moment.now)

    async def look(
        self,
        connection: Any,
        row: RolloutRow,
        point: PointRow,
        sources: Sequence[SourceEvidence],
        moment: ClockReading,
    ) -> Evidence:
        """Return the current evidence, read in the transaction of the verdict."""
        if row.step != self._step:
            self._step, self._elapsed_s = row.step, 0.0
        now = datetime.fromtimestamp(moment.now, UTC)
        closed = now - timedelta(seconds=self._paces.settle_s)
        await self._watch_units(connection, row, point, closed)
        self._last_at = await last_decision_at(connection, row, self._last_at)
        return Evidence(
            # From the monotonic clock: setting a clock does not change the length of a stage.
            step_started_at=moment.now - self._elapsed_s,
            last_decision_at=None if self._last_at is None else self._last_at.timestamp(),
            arrived=self._units.arrived,
            closed=self._units.closed,
            step_closed=self._units.closed_since(row.step_started_at.timestamp()),
            metrics=self._units.metrics(),
            sources=tuple(sources),
            shadow=self._shadow.evidence() if row.stage == "shadow" else None,
            off_policy=self._off_policy if row.stage == "shadow" else None,
            doubts=tuple(self._doubts(moment, point, row)),
        )

    def _doubts(self, moment: ClockReading, point: PointRow, row: RolloutRow) -> list[str]:
        doubts = [moment.doubt, self.trouble]
        if self._behind:
            doubts.append("the log is still being read")
        if self._misplaced:
            what = f"{self._misplaced} decisions were served by another arm than planned"
            doubts.append(f"{what}; check that all services run this version")
        if point.snapshot != row.control:
            doubts.append(
                f"{point.snapshot} is the live policy now, but the control is {row.control}"
            )
        return [doubt for doubt in doubts if doubt]

    def _known_elapsed(self, row: RolloutRow, now: float) -> float:
        """Return the observed duration of the step in seconds, plus at most `keep_s`."""
        if self.verdict is None or self.verdict.step != row.step:
            observed_s, until = 0.0, row.step_started_at.timestamp()
        else:
            inputs = self.verdict.inputs
            observed_s = inputs["now"] - inputs["evidence"]["step_started_at"]
            until = inputs["now"]
        return float(observed_s + min(max(0.0, now - until), self._paces.keep_s))

    async def _verify(self, connection: Any, row: RolloutRow, now: float) -> None:
        if self._loaded_at is not None and 0 <= now - self._loaded_at < self._paces.reload_s:
            return
        self._loaded_at = now
        try:
            async with as_tenant(connection, row.tenant):
                point = await hold_view(connection, self._point)
                _, self._candidate = await candidate_of(
                    connection, point, row.candidate, self._bases
                )
        except SteersmanError as error:
            self.trouble = f"the candidate {row.candidate} cannot be loaded: {error!s:.300}"
        else:
            self.trouble = ""

    async def _ask_the_log(self, connection: Any, now: float) -> None:
        if self._asking is not None:
            if self._asking.done():
                self._off_policy, self._asking = self._asking.result(), None
            return
        found = self._off_policy
        # A shadow stage of a few seconds must not wait half a minute for its evidence.
        pace = min(self._paces.evidence_s, max(1.0, self.plan.stages[self._step or 0].min_s))
        fresh = self._asked_at is not None and 0 <= now - self._asked_at < pace
        if self._candidate is None or (found is not None and (not found.reasons or fresh)):
            return
        self._asked_at = now
        closed = datetime.fromtimestamp(now - self._paces.settle_s, UTC)
        async with as_tenant(connection, self._point[0]):
            logged = await logged_choices(
                connection,
                self._point,
                closed=closed,
                since=self._candidate.since,
                judged=self._candidate.spec,
            )
        # In a thread, because it may take seconds and must not delay other rollouts. On a copy,
        # because the shadow run uses the policy meanwhile and policies are not thread-safe.
        own = replace(self._candidate, policy=deepcopy(self._candidate.policy))
        self._asking = asyncio.create_task(
            asyncio.to_thread(off_policy, own, logged, gates=self.plan, often=True)
        )

    async def _watch_shadow(self, connection: Any, row: RolloutRow, now: float) -> None:
        most = max(_MOST_SHADOWED, self.plan.stages[row.step].min_units)
        if self._candidate is None or self._shadow.decisions >= most:
            return
        async with as_tenant(connection, row.tenant):
            until = datetime.fromtimestamp(now, UTC)
            logged = await shadowed(connection, row, self._shadowing, until)
        target_ms = self._candidate.spec.budgets.deadline_ms
        await asyncio.to_thread(shadow, self._candidate, logged, self._shadow, target_ms=target_ms)

    async def _watch_units(
        self, connection: Any, row: RolloutRow, point: PointRow, closed: datetime
    ) -> None:
        found = await observe(connection, row, point, self._gathering, closed)
        for decision in found.observed:
            self._units.add(decision)
        self._misplaced += found.misplaced
        self._behind = found.behind
        if not found.behind:
            self._units.close(closed.timestamp())
