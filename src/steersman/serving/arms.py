"""Arms of a rollout in one process: which policy serves a unit, and how its row is labelled.

All data for a decision is in one object that is replaced as a whole, so a decision never sees a
mixture of two stages. If the candidate cannot serve its unit, control serves it: the row keeps the
rollout and names control as the arm that drew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from steersman.rollouts.plan import RolloutPlan
from steersman.rollouts.units import place, position

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow
    from steersman.wire import DecideRequest


C = TypeVar("C")
"""Type of the served candidate."""


class Label(NamedTuple):
    """Rollout labels of a decision's row.

    Attributes:
        rollout: rollout id; None: the decision is not part of an analysed rollout.
        stage: shadow, canary, ab or live.
        arm: arm that drew: control or candidate.
    """

    rollout: str | None = None
    stage: str = "live"
    arm: str = "control"


PLAIN = Label()


class Turn(NamedTuple, Generic[C]):
    """Arm assignment of one decision.

    Attributes:
        arm: assigned arm: control or candidate.
        served: candidate to draw with; None: control draws.
        label: labels of the row.
        fallen: labels of the row if control draws for the candidate.
    """

    arm: str
    served: C | None
    label: Label
    fallen: Label


class Arms(Generic[C]):
    """Active rollout as it is served now.

    Args:
        row: the rollout.
        candidate: loaded candidate; None: not loaded, control serves instead.

    Raises:
        InputError: an invalid stage, share, salt or plan.
    """

    __slots__ = (
        *("_control", "_holdback", "_salt", "_share", "_stage", "_turn"),
        *("candidate", "failures", "row"),
    )

    def __init__(self, row: RolloutRow, candidate: C | None) -> None:
        self.row = row
        self.candidate = candidate
        self.failures = 0  # of the candidate, since the arms last changed
        self._holdback = RolloutPlan.from_json(row.plan).holdback
        self._salt = row.salt
        self._stage: Any = row.stage
        self._share = min(row.share, 0.5)  # at live the holdback decides
        place(position(row.salt, ""), self._stage, self._share, self._holdback)  # validates
        own, candidates = (Label(str(row.id), row.stage, arm) for arm in ("control", "candidate"))
        self._control: Turn[C] = Turn("control", None, own, own)
        self._turn = Turn("candidate", candidate, candidates, own)

    def turn(self, unit: str) -> Turn[C]:
        """Return the arm assignment of a unit; see `unit_of`."""
        if self._stage == "shadow":
            return self._control
        placed = place(position(self._salt, unit), self._stage, self._share, self._holdback)
        if placed.arm == "candidate":
            return self._turn
        return self._control if placed.analysed else _ASIDE


_ASIDE: Turn[Any] = Turn("control", None, PLAIN, PLAIN)


def unit_of(request: DecideRequest, identifier: UUID) -> str:
    """Return the unit that stays on one arm: declared unit, else episode, else decision id.

    >>> from uuid import UUID
    >>> from steersman.wire import DecideRequest
    >>> unit_of(DecideRequest("chat", "route", episode_id="e-7"), UUID(int=0))
    'e-7'
    """
    return request.unit or request.episode_id or str(identifier)
