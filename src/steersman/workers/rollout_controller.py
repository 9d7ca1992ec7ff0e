"""Rollout controller: judges every active rollout and moves it forward or back.

Any number of controllers may run; one at a time moves a rollout. A turn is one transaction: it
checks the claim, then writes the verdict with its inputs and the resulting move. A killed
controller leaves either the whole turn or nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.db.rollout_transitions import claim_rollout, due_rollouts
from steersman.db.tenants import list_tenants
from steersman.errors import FencedError
from steersman.learning.replica import StoredBases
from steersman.platform.postgres.lease import Lease, Leases
from steersman.rollouts.controller_step import ControllerStep, StepResult, take_turn
from steersman.rollouts.error_sources import StoreSource
from steersman.rollouts.evidence import SourceEvidence
from steersman.rollouts.evidence_cache import EvidenceMemory
from steersman.rollouts.trusted_clock import SteadyClock
from steersman.workers.runner import UNAVAILABLE, Pace, Session, run_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow
    from steersman.learning.replica import Bases
    from steersman.platform.postgres.database import Database
    from steersman.rollouts.error_sources import Source
    from steersman.rollouts.trusted_clock import ClockReading


Task = tuple["UUID", "UUID"]
"""Tenant and rollout."""


@dataclass(slots=True, eq=False)
class Claim(Lease):
    """Rollout that this controller moves.

    Attributes:
        row: the rollout, with the epoch of the claim.
    """

    row: RolloutRow


class Claims(Leases[Task, Claim]):
    """Rollouts that one controller holds; see `Leases`."""

    def __init__(self, connection: Any, holder: str, lease_s: float) -> None:
        super().__init__("rollout", connection, holder, lease_s)

    async def _claim(self, key: Task, idle_s: float | None) -> Claim | None:
        row = await claim_rollout(self._connection, *key, self._holder, idle_s=idle_s)
        return None if row is None else Claim(row)


_log = logging.getLogger(__name__)
_BROKEN_S = 10.0
_EVER = datetime(9999, 1, 1, tzinfo=UTC)  # every rollout is due, even if a clock is wrong
_TENANTS_S = 5.0  # cache time; a new tenant needs longer to produce counts
_MIXED = "its counts cover all tenants together, and this store has several; run without it"
_BAD_DATA = {"22", "23", "42"}  # SQLSTATE classes: data, constraints, access rules
_TRY_AGAIN = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of a controller.

    Attributes:
        poll_s: maximum wait between two looks at a rollout, in seconds.
        lease_s: time in seconds after which a silent controller loses its rollouts.
        keep_s: time in seconds after which an unchanged verdict is stored again.
        settle_s: delay in seconds after a window's end before its decision counts, for late events.
        evidence_s: interval in seconds of off-policy evaluation while it is not enough.
        reload_s: interval in seconds for verifying the candidate.
        clock_tolerance_s: accepted jump of the wall clock between two looks, in seconds.
        clock_steady_s: time in seconds without jumps before the clock is trusted again.
        holder: display name; default: host and process.
    """

    poll_s: float = 1.0
    lease_s: float = 10.0
    keep_s: float = 60.0
    settle_s: float = 1.0
    evidence_s: float = 30.0
    reload_s: float = 30.0
    clock_tolerance_s: float = 2.0
    clock_steady_s: float = 60.0
    holder: str = ""


async def run_controller(
    database: Database,
    *,
    stop: asyncio.Event,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    sources: Sequence[Source] = (),
    bases: Bases | None = None,
    watch: Callable[[StepResult], None] = lambda _done: None,
    settings: ControllerSettings | None = None,
) -> None:
    """Control rollouts until `stop` is set.

    While the store does not respond, the controller retries; then it claims all rollouts again.

    Args:
        clock: seconds since 1970.
        monotonic: monotonic clock in seconds.
        bases: verifier of candidates; default: trust the store's rows.
    """
    chosen = settings or ControllerSettings()
    steady = SteadyClock(
        clock,
        monotonic,
        tolerance_s=chosen.clock_tolerance_s,
        steady_s=chosen.clock_steady_s,
    )
    controller = _Controller(
        database, stop, steady, (StoreSource(), *sources), bases or StoredBases(), watch, chosen
    )
    pace = Pace(
        worker="controller",
        poll_s=chosen.poll_s,
        channel="steersman_rollout",
        lease_s=chosen.lease_s,
    )
    await run_worker(database, pace, controller.serve, stop=stop)


class _Controller:
    def __init__(
        self,
        database: Database,
        stop: asyncio.Event,
        clock: SteadyClock,
        sources: Sequence[Source],
        bases: Bases,
        watch: Callable[[StepResult], None],
        settings: ControllerSettings,
    ) -> None:
        self._database = database
        self._stop = stop
        self._clock = clock
        self._sources = sources
        self._bases = bases
        self._watch = watch
        self._settings = settings
        self._looking: dict[Task, EvidenceMemory] = {}
        self._tenants, self._tenants_until = 0, float("-inf")

    async def serve(self, session: Session) -> None:
        """Work until stopped or disconnected."""
        self._looking.clear()
        work, locks, _ = session.connections
        claims = Claims(locks, self._settings.holder, self._settings.lease_s)
        session.heartbeat = claims.keep
        while session.goes_on():
            await self._round(work, claims)
            await session.wait()

    async def _round(self, connection: Any, claims: Claims) -> None:
        """Look at every active rollout once."""
        moment = self._clock.look()
        tasks = await due_rollouts(connection, _EVER)
        for gone in set(claims.held) - set(tasks):
            await self._let_go(claims, gone)
        for task in tasks:
            if self._stop.is_set():
                return
            claim = await claims.take(task)
            if claim is None:
                self._looking.pop(task, None)
            else:
                await self._look_at(connection, claims, claim, moment)

    async def _look_at(
        self, connection: Any, claims: Claims, claim: Claim, moment: ClockReading
    ) -> None:
        """Take one turn, or log why not."""
        row = claim.row
        task = row.tenant, row.id
        try:
            looking = self._looking.get(task)
            if looking is None:
                looking = self._looking[task] = EvidenceMemory(row, self._bases, self._settings)
            await looking.prepare(connection, row, moment)
            said = await self._ask(connection, row, looking, moment)
            done = await take_turn(
                connection, ControllerStep(row, looking, said, moment, self._settings)
            )
        except FencedError as error:
            _log.info("%s", error)
            await self._let_go(claims, task)
        except _TRY_AGAIN as error:
            _log.info("rollout %s is being changed by another process: %r", row.id, error)
            self._looking.pop(task, None)
        except Exception as error:
            self._looking.pop(task, None)  # its memory may contain uncommitted results
            if isinstance(error, UNAVAILABLE) and not _is_broken(error):
                raise
            _log.exception("rollout %s will not be checked for %g s", row.id, _BROKEN_S)
            await self._let_go(claims, task, pause_s=_BROKEN_S)
        else:
            claim.row = done.row
            if not done.row.is_under_way:
                await self._let_go(claims, task)
            self._watch(done)

    async def _ask(
        self, connection: Any, row: RolloutRow, looking: EvidenceMemory, moment: ClockReading
    ) -> list[SourceEvidence]:
        """Query the sources outside the judging transaction, because they may hang."""
        now = datetime.fromtimestamp(moment.now, UTC)
        said = []
        for source in self._sources:
            if source.tells_tenants_apart or await self._is_only_tenant():
                said.append(await source.read(connection, row, looking.stretches, now))
            else:
                said.append(SourceEvidence(source.name, alive=False, reason=_MIXED))
        return said

    async def _is_only_tenant(self) -> bool:
        """Return whether the store has a single tenant, so that total counts are its counts.

        Names of other tenants' points are not compared, because the verdict would disclose them.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._tenants_until:
            self._tenants = len(await list_tenants(self._database))
            self._tenants_until = now + _TENANTS_S
        return self._tenants == 1

    async def _let_go(self, claims: Claims, task: Task, *, pause_s: float = 0.0) -> None:
        self._looking.pop(task, None)
        await claims.give_up(task, pause_s=pause_s)


def _is_broken(error: Exception) -> bool:
    """Return whether the error concerns this rollout only, and not the store."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] in _BAD_DATA
