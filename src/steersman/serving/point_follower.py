"""Control and candidate of one decision point in a process, loaded as the store defines.

The store defines what to serve (`Plan`). A state reachable by updates is updated in place, between
two decisions. Every other state is loaded in the background while the old one serves, and replaces
it in one assignment.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.learners import learner_positions
from steersman.db.points import UnreadablePoint, points_as_they_are
from steersman.db.rollouts import active_rollouts
from steersman.db.snapshots import find_snapshot
from steersman.errors import InputError, MissingSnapshotError, SteersmanError
from steersman.learning.replica import follow
from steersman.serving.arm_loader import Slot
from steersman.serving.arms import Arms
from steersman.snapshots.verified_bases import of_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.serving.arm_loader import Loader
    from steersman.serving.draw import ServedPoint

_log = logging.getLogger(__name__)
_FAR = 2_000  # missing updates above which a stored state is loaded
_FIRST_S = 5.0  # wait for the replica of a tenant's first request


class Plan(NamedTuple):
    """State that the store wants a decision point to serve.

    Attributes:
        row: declared decision point.
        control: decision point with the snapshot of control.
        until: update number at which control stays; None: it follows its log.
        last: last update of that log; None: unknown.
        rollout: active rollout; None: none.
        candidate: decision point with the candidate's snapshot; None: none.
        problem: why the candidate is missing although a rollout is active.
    """

    row: PointRow
    control: PointRow
    until: int | None
    last: int | None
    rollout: RolloutRow | None = None
    candidate: PointRow | None = None
    problem: str = ""

    @property
    def key(self) -> tuple[str, bytes, int | None]:
        """Identity of the state that control serves."""
        return self.control.snapshot, self.control.spec_hash, self.until


async def plans_of(connection: Any, tenant: UUID) -> tuple[list[Plan], list[UnreadablePoint]]:
    """Return the plan of each decision point of a tenant, read in one snapshot of the store."""
    rows, unreadable = await points_as_they_are(connection, tenant)
    rollouts = {(it.skill, it.point): it for it in await active_rollouts(connection, tenant)}
    learners = await learner_positions(connection)
    plans = []
    for row in rows:
        place = row.skill, row.point
        rollout = rollouts.get(place)
        if rollout is not None:
            try:
                plans.append(await _in_rollout(connection, row, rollout))
            except SteersmanError as error:
                unreadable.append(_without_control(row, rollout, error))
            continue
        learner = learners.get(place)
        last = None if learner is None or learner.snapshot != row.snapshot else learner.seq
        plans.append(Plan(row, row, row.pinned_seq, last))
    return plans, unreadable


async def _in_rollout(connection: Any, row: PointRow, rollout: RolloutRow) -> Plan:
    control, candidate, problem = row, None, ""
    if rollout.control != row.snapshot:
        control = await _at(connection, row, rollout.control)
    try:
        candidate = await _at(connection, row, rollout.candidate)
    except SteersmanError as error:
        problem = str(error)
    return Plan(row, control, rollout.control_seq, None, rollout, candidate, problem)


def _without_control(row: PointRow, rollout: RolloutRow, error: SteersmanError) -> UnreadablePoint:
    why = f"control {rollout.control} of the rollout of {row.skill}/{row.point}: {error}"
    return UnreadablePoint(
        *(row.skill, row.point, row.snapshot, row.spec_hash, why, row.pinned_seq, row.pinned_by),
        privacy=row.spec.privacy,
    )


async def _at(connection: Any, row: PointRow, version: str) -> PointRow:
    found = await find_snapshot(connection, (row.tenant, row.skill, row.point), version)
    if found.retracted_at is not None:
        message = f"{row.skill}/{row.point} {version} was retracted; serve another snapshot"
        raise MissingSnapshotError(message)
    return await of_snapshot(connection, row, found)


class PointFollower:
    """Follower of one decision point.

    Args:
        name: name of the point for log messages.
        loader: loader of states.
        serve: callback with the new served state.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self,
        name: str,
        loader: Loader,
        serve: Callable[[ServedPoint], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.served: ServedPoint | None = None
        self.plan: Plan | None = None
        self._name = name
        self._loader = loader
        self._serve = serve
        self._key: Any = None  # key of the served control state; None: not the wanted state
        self._control = Slot(f"control of {name}", clock, self._arrange)
        self._stand_in = Slot(f"substitute for {name}", clock, self._arrange)
        self._candidate = Slot(f"candidate of {name}", clock, self._arrange)

    @property
    def problem(self) -> str:
        """Reason why this process does not serve the wanted state; empty: it does or soon will."""
        return self._control.error or self._candidate.error

    @property
    def candidate(self) -> ServedPoint | None:
        """Loaded candidate."""
        return self._candidate.served

    def want(self, plan: Plan) -> None:
        """Serve the newest plan, now or after loading."""
        if self.served is not None and self.plan is not None and self.plan.key != plan.key:
            self._stand_in.forget()  # the substitute was for an older plan
        self.plan = plan
        self._want_control(plan)
        if plan.rollout is None:
            self._candidate.forget()
        elif plan.candidate is None:
            self._candidate.refuse(plan.rollout.candidate, plan.problem)
        else:
            wanted = plan.candidate
            key = wanted.snapshot, wanted.spec_hash
            self._candidate.want(key, lambda: self._loader.load(wanted, 0))
        self._arrange()

    async def ready(self) -> None:
        """Wait for a limited time until a state serves, preferably the wanted one."""
        await self._control.tried(_FIRST_S)
        await self._candidate.tried(_FIRST_S)
        if self.served is None and self.plan is not None:
            row = self.plan.row
            self._stand_in.want(row.snapshot, lambda: self._loader.stand_in(row))
            await self._stand_in.tried(_FIRST_S)

    def close(self) -> None:
        """Stop loading."""
        for slot in (self._control, self._stand_in, self._candidate):
            slot.forget()

    async def catch_up(self, connection: Any) -> None:
        """Apply new updates to the served states."""
        served, plan = self.served, self.plan
        if served is None or plan is None or self._key != plan.key or self._control.busy:
            return
        replica = served.replica
        last = plan.last if plan.until is None else plan.until
        if last is not None and replica.seq >= last:
            return
        try:
            await follow(connection, replica)
        except SteersmanError as error:
            _log.warning("%s is reloaded: %s", self._name, error)
            self._key = None
            self._want_control(plan)

    def _want_control(self, plan: Plan) -> None:
        if not self._reach(plan):
            control, until = plan.control, plan.until
            self._control.want(plan.key, lambda: self._loader.load(control, until))
        elif self._far(plan):
            control = plan.control
            self._control.want((plan.key, "far"), lambda: self._loader.load(control, None))
        else:
            self._control.forget()

    def _reach(self, plan: Plan) -> bool:
        """Return whether the served state is the wanted one or reaches it by updates in place."""
        if self._key == plan.key:
            return True
        promoted = self._candidate.served
        if promoted is not None and plan.rollout is None and _leads_to(promoted, plan):
            # Serve the loaded candidate as control, so that its units see no other state.
            promoted.arms = None
            self.served = promoted
        elif (
            self.served is None
            or self._key is None
            or not _leads_to(self.served, plan)
            or self._far(plan)
        ):
            return False
        self.served.replica.until = plan.until
        self._key = plan.key
        return True

    def _far(self, plan: Plan) -> bool:
        """Return whether so many updates are missing that a stored state must be loaded."""
        if self.served is None or plan.until is not None or plan.last is None:
            return False
        return plan.last - self.served.replica.seq > _FAR

    def _arrange(self) -> None:
        """Publish the loaded states in one assignment."""
        plan = self.plan
        if plan is None:
            return
        if self._control.served is not None:
            self.served, self._key = self._control.served, plan.key
            self._control.forget()
            self._stand_in.forget()
        elif self._key != plan.key and self._stand_in.served is not None:
            self.served, self._key = self._stand_in.served, None
            self._stand_in.forget()  # it serves now; a retraction replaces it
        elif self._key != plan.key and self._control.error and self.served is not None:
            self._leave_retracted(plan, self.served)
        if self.served is not None:
            self.served.arms = self._arms(plan)
            self._serve(self.served)

    def _leave_retracted(self, plan: Plan, served: ServedPoint) -> None:
        """Serve a substitute for a retracted version while the wanted one cannot be loaded.

        Every refresh checks this again, because a substitute may be retracted later.
        """
        row, old = plan.row, served.replica.snapshot

        async def instead() -> ServedPoint | None:
            gone = await self._loader.retracted(row, old)
            return await self._loader.stand_in(row) if gone else None

        self._stand_in.want((plan.key, old), instead)

    def _arms(self, plan: Plan) -> Arms[ServedPoint] | None:
        """Return the arms; None without a rollout or while this process cannot take part."""
        candidate = self._candidate
        if self._key != plan.key:
            return self._until_promoted(plan)
        if plan.rollout is None:
            return None
        if candidate.served is None and not candidate.error:
            return None
        try:
            return Arms(plan.rollout, candidate.served)
        except InputError:
            _log.exception("the rollout of %s cannot be served", self._name)
            return None

    def _until_promoted(self, plan: Plan) -> Arms[ServedPoint] | None:
        """Return the present arms while the promoted candidate is being loaded."""
        arms = None if self.served is None else self.served.arms
        if arms is None or arms.candidate is None or plan.rollout is not None:
            return None
        return arms if arms.candidate.replica.snapshot == plan.control.snapshot else None


def _leads_to(served: ServedPoint, plan: Plan) -> bool:
    """Return whether further updates of the same log turn the served state into the wanted one."""
    replica, wanted = served.replica, plan.control
    same = (replica.snapshot, replica.row.spec_hash) == (wanted.snapshot, wanted.spec_hash)
    return same and (plan.until is None or replica.seq <= plan.until)
