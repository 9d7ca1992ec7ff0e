"""Reports of pipeline steps, gates and checks."""

from __future__ import annotations

import time
from collections.abc import Callable  # noqa: TC003 (field type)
from dataclasses import asdict, dataclass, field
from pathlib import Path  # noqa: TC003 (field type)
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from steersman.db.tenants import Tenant
    from steersman.learning.replica import Bases
    from steersman.platform.postgres.database import Database
    from steersman.registry.consumer import Consumer
    from steersman.registry.repository import Publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Resources of a pipeline.

    Attributes:
        database: migrated store.
        tenant: owner of the decision points.
        actor: name in the audit log.
        signer: publisher of the tenant's registry; None: no keys on this machine.
        bases: verifies candidates before they serve.
        consumer: makes a consumer of the registry with its cache in a folder.
        clock: seconds since 1970.
        monotonic: monotonic clock in seconds.
    """

    database: Database
    tenant: Tenant
    actor: str
    signer: Publisher | None
    bases: Bases
    consumer: Callable[[Path], Consumer]
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


Step = Literal["dataset", "train", "evaluate", "package", "canary", "monitor", "promote"]
STEPS: tuple[Step, ...] = get_args(Step)
"""Steps, in order."""

Status = Literal["done", "refused", "waits", "would"]


@dataclass(frozen=True, slots=True)
class Gate:
    """Limit for a measured number.

    Attributes:
        name: key in the configuration.
        measured: the number; None: unknown, which fails.
        limit: the limit.
        kind: least (minimum) or most (maximum).
        of: name of the measured number.
    """

    name: str
    measured: float | None
    limit: float
    kind: Literal["least", "most"]
    of: str = ""

    @property
    def passes(self) -> bool:
        """Return whether the number is within the limit.

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
    """Result of one step for one decision point.

    Attributes:
        point: name of the decision point.
        step: the step.
        status: ``done``; ``refused``; ``waits`` for a verdict; ``would`` with ``--dry-run``.
        said: one line for people.
        values: all numbers, as in JSON.
        gates: gates of the step.
    """

    point: str
    step: Step
    status: Status
    said: str
    values: dict[str, Any] = field(default_factory=dict)
    gates: tuple[Gate, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Return whether the next step may run."""
        return self.status in {"done", "would"}

    def to_json(self) -> dict[str, Any]:
        """Return plain values and dates."""
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
    """Result of one check of the validation.

    Attributes:
        name: what was checked.
        ok: whether it passed.
        said: the finding; for a failure, also what to do.
    """

    name: str
    ok: bool
    said: str
