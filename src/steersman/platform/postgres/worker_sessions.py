"""Session limits of leased workers: the server ends what a stopped worker left open.

A paused learner or controller must not keep its row locks. Between statements PostgreSQL ends its
idle transaction. Between preparation and execution of a statement it is ``active`` without limit;
version 17 can limit the whole transaction, and before that other workers end it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Literal

    Worker = Literal["learner", "controller"]

_WITH_TRANSACTION_TIMEOUT = 17
_LEASES = 6
"""Maximum duration of a transaction, far longer than a batch."""

_END_UNFINISHED = """
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = session_user
  AND application_name = current_setting('application_name') AND pid <> pg_backend_pid()
  AND state = 'active' AND wait_event = 'ClientRead'
  AND state_change < clock_timestamp() - make_interval(secs => $1)
"""


async def work_under_lease(connection: Any, worker: Worker, lease_s: float) -> None:
    """Name a session and limit its open transactions by its lease.

    Args:
        lease_s: lease in seconds, above 0.
    """
    lease_ms = round(lease_s * 1000)
    await connection.execute(f"SET application_name = 'steersman {worker}'")
    await connection.execute(f"SET idle_in_transaction_session_timeout = {lease_ms}")
    if not _is_old(connection):
        await connection.execute(f"SET transaction_timeout = {_LEASES * lease_ms}")
    await connection.execute(f"SET lock_timeout = {max(1, lease_ms // 4)}")


async def end_unfinished(connection: Any, lease_s: float) -> int:
    """End sessions of the same work that stopped within a statement; does nothing from 17 on.

    Args:
        lease_s: lease of this work in seconds.
    """
    if not _is_old(connection):
        return 0
    async with connection.transaction():
        # A user can see and end its own sessions; the current role does not matter.
        await connection.execute("SET LOCAL ROLE NONE")
        ended: int = await connection.fetchval(_END_UNFINISHED, _LEASES * lease_s)
    return ended


async def allow_long(connection: Any) -> None:
    """Remove the time limit of the current transaction, except for idling."""
    if not _is_old(connection):
        await connection.execute("SET LOCAL transaction_timeout = 0")


def _is_old(connection: Any) -> bool:
    major: int = connection.get_server_version().major
    return major < _WITH_TRANSACTION_TIMEOUT
