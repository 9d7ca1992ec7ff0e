"""What the steps of a pipeline tell: what was done, or why not, with every number."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Step = Literal["dataset", "train", "evaluate", "package", "canary", "monitor", "promote"]
STEPS: tuple[Step, ...] = get_args(Step)
"""In their order."""

Status = Literal["done", "refused", "waits", "would"]


@dataclass(frozen=True, slots=True)
class Gate:
    """A number that must be on the right side of its limit.

    Attributes:
        name: as the configuration calls it.
        measured: the number; None: it could not be had, which never passes.
        limit: that it must keep.
        kind: whether the limit is the least or the most that is allowed.
        of: what was measured.
    """

    name: str
    measured: float | None
    limit: float
    kind: Literal["least", "most"]
    of: str = ""

    @property
    def passes(self) -> bool:
        """Whether the limit is kept.

        >>> Gate("min_value", 0.41, 0.4, "least").passes, Gate("min_value", None, 0, "least").passes
        (True, False)
        """
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.kind == "least" else self.measured <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "passes": self.passes}


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did about one decision point.

    Attributes:
        point: the decision point's name.
        step: which one.
        status: ``done``; ``refused``; ``waits`` for what time will bring; or ``would`` have been
            done without ``--dry-run``.
        said: one line for people.
        values: every number of it, as JSON has them.
        gates: that it was held against.
    """

    point: str
    step: Step
    status: Status
    said: str
    values: dict[str, Any] = field(default_factory=dict)
    gates: tuple[Gate, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Whether the next step may follow."""
        return self.status in {"done", "would"}

    def to_json(self) -> dict[str, Any]:
        """Return plain values, dates among them."""
        found: dict[str, Any] = {
            "point": self.point,
            "step": self.step,
            "status": self.status,
            "said": self.said,
            **self.values,
        }
        if self.gates:
            found["gates"] = [gate.to_json() for gate in self.gates]
        return found


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at before anything is done.

    Attributes:
        name: what it was.
        ok: whether it is as it should be.
        said: what was seen, and what to do where it is not.
    """

    name: str
    ok: bool
    said: str
