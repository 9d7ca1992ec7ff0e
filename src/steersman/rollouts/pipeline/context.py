"""Resources of a pipeline: store, clock, signer and consumer of a tenant."""

from __future__ import annotations

import time
from collections.abc import Callable  # noqa: TC003 (of a field)
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 (of a field)
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman.db.tenants import Tenant
    from steersman.learning.bases import Bases
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
