"""Difference between two snapshots: changed entries and traffic shifts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Changed:
    """One entry that differs.

    Args:
        before: value in the first snapshot; None if absent.
        after: value in the second snapshot; None if absent.
    """

    before: Any
    after: Any

    def to_json(self) -> dict[str, Any]:
        """Return both values as JSON values."""
        return {"before": self.before, "after": self.after}


@dataclass(frozen=True)
class Shift:
    """Traffic share of one action on the reference log.

    Args:
        action: action name.
        before: share under the first snapshot, in [0, 1].
        after: share under the second snapshot, in [0, 1].
    """

    action: str
    before: float
    after: float


@dataclass(frozen=True)
class Traffic:
    """Traffic shifts between actions.

    Args:
        shifts: shift per action, the largest change first.
        moved: mean probability that moves from one action to another, in [0, 1].
        flipped: share of requests whose most likely action changes, in [0, 1].
        rows: number of requests compared.
    """

    shifts: tuple[Shift, ...]
    moved: float
    flipped: float
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return the traffic shifts as JSON values."""
        return {
            "rows": self.rows,
            "moved": self.moved,
            "flipped": self.flipped,
            "actions": [asdict(shift) for shift in self.shifts],
        }
