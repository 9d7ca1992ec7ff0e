"""What a pipeline works with: a store, a clock, and what signs and verifies for a tenant."""

from __future__ import annotations

import time
from collections.abc import Callable  # noqa: TC003 (of a field)
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 (of a field)
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman.learn import Bases
    from steersman.registry import Consumer, Publisher
    from steersman.store import Database, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What a pipeline works with.

    Attributes:
        database: migrated.
        tenant: whose decision points they are.
        actor: who runs it, for the audit.
        signer: of the tenant's repository; None: its keys are not here.
        bases: verifies candidates before they serve.
        consumer: makes a reader of the repository with a cache of its own in a folder.
        clock: seconds since 1970.
        monotonic: seconds that never step.
    """

    database: Database
    tenant: Tenant
    actor: str
    signer: Publisher | None
    bases: Bases
    consumer: Callable[[Path], Consumer]
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
