"""What may change from one snapshot to another: an entry, and who gets the traffic."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Changed:
    """One entry that differs.

    Args:
        before: in the first snapshot; None where it has none.
        after: in the second.
    """

    before: Any
    after: Any

    def to_json(self) -> dict[str, Any]:
        """Return both as values that JSON knows."""
        return {"before": self.before, "after": self.after}


@dataclass(frozen=True)
class Shift:
    """Share of the reference log's requests that an action gets.

    Args:
        action: its name.
        before: share under the first snapshot, in [0, 1].
        after: share under the second.
    """

    action: str
    before: float
    after: float


@dataclass(frozen=True)
class Traffic:
    """How requests move between actions.

    Args:
        shifts: by action, the largest change first.
        moved: mean probability that has to move from one action to another, in [0, 1].
        flipped: share of requests whose likeliest action is another, in [0, 1].
        rows: requests compared.
    """

    shifts: tuple[Shift, ...]
    moved: float
    flipped: float
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return what moves as values that JSON knows."""
        return {
            "rows": self.rows,
            "moved": self.moved,
            "flipped": self.flipped,
            "actions": [asdict(shift) for shift in self.shifts],
        }
