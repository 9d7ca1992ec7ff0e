"""The arms of a rollout as one process serves them: who draws for a unit, and what its row says.

Everything a decision needs is in one object that is replaced as a whole, so a decision sees the
stage before a change or the one after it, and never half of each. A unit of a candidate that
cannot serve is served by control: its row keeps the rollout and names control as the arm that drew,
so whoever reads the rows sees that another arm served it than its place says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from steersman.rollout import RolloutPlan, place, position

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.store import RolloutRow
    from steersman.wire import DecideRequest

C = TypeVar("C")
"""What draws for the candidate: nothing here looks into it."""


class Label(NamedTuple):
    """What a decision's row says of the rollout it was made in.

    Attributes:
        rollout: its id; None: the decision belongs to none, or is not analysed.
        stage: shadow, canary, ab or live.
        arm: that drew: control or candidate.
    """

    rollout: str | None = None
    stage: str = "live"
    arm: str = "control"


PLAIN = Label()


class Turn(NamedTuple, Generic[C]):
    """Whose turn a decision is.

    Attributes:
        arm: whose turn it is: control or candidate.
        served: the candidate, if it is there to draw; None: control does.
        label: of the row.
        fallen: of the row if control has to draw for the candidate.
    """

    arm: str
    served: C | None
    label: Label
    fallen: Label


class Arms(Generic[C]):
    """A rollout under way, as it is served now.

    Args:
        row: the rollout.
        candidate: serves it; None: it could not be loaded, and control serves for it.

    Raises:
        InputError: a stage, share, salt or plan that no rollout has.
    """

    __slots__ = (
        *("_control", "_holdback", "_salt", "_share", "_stage", "_turn"),
        *("candidate", "failures", "row"),
    )

    def __init__(self, row: RolloutRow, candidate: C | None) -> None:
        self.row = row
        self.candidate = candidate
        self.failures = 0  # of the candidate, since the last change
        self._holdback = RolloutPlan.from_json(row.plan).holdback
        self._salt = row.salt
        self._stage: Any = row.stage
        self._share = min(row.share, 0.5)  # at live it is the holdback that counts
        place(position(row.salt, ""), self._stage, self._share, self._holdback)  # or refuses
        own, candidates = (Label(str(row.id), row.stage, arm) for arm in ("control", "candidate"))
        self._control: Turn[C] = Turn("control", None, own, own)
        self._turn = Turn("candidate", candidate, candidates, own)

    def turn(self, unit: str) -> Turn[C]:
        """Return whose turn a unit's decision is.

        Args:
            unit: of `unit_of`.
        """
        if self._stage == "shadow":
            return self._control
        placed = place(position(self._salt, unit), self._stage, self._share, self._holdback)
        if placed.arm == "candidate":
            return self._turn
        return self._control if placed.analysed else _ASIDE


_ASIDE: Turn[Any] = Turn("control", None, PLAIN, PLAIN)


def unit_of(request: DecideRequest, identifier: UUID) -> str:
    """Return what stays on one arm: the unit, else the episode, else this decision alone.

    Args:
        request: what is asked.
        identifier: of the decision.

    >>> from uuid import UUID
    >>> from steersman.wire import DecideRequest
    >>> unit_of(DecideRequest("chat", "route", episode_id="e-7"), UUID(int=0))
    'e-7'
    """
    return request.unit or request.episode_id or str(identifier)
