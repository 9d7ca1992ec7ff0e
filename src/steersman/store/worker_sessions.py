"""Sessions of those who work under a lease: the server ends what one that stopped left open.

A learner or a controller that is paused must not keep the rows it was at. Between two statements
PostgreSQL calls it idle and ends its transaction. Between the preparation of a statement and its
execution it is ``active``, for ever: version 17 can limit the whole transaction, and before that
whoever else works ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Literal

    Worker = Literal["learner", "controller"]

_WITH_TRANSACTION_TIMEOUT = 17
_LEASES = 6
"""What a transaction may last: far longer than a batch."""

_END_UNFINISHED = """
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = session_user
  AND application_name = current_setting('application_name') AND pid <> pg_backend_pid()
  AND state = 'active' AND wait_event = 'ClientRead'
  AND state_change < clock_timestamp() - make_interval(secs => $1)
"""


async def work_under_lease(connection: Any, worker: Worker, lease_s: float) -> None:
    """Name a session, and let nothing that it leaves open outlive its lease for long.

    Args:
        connection: of the role ``worker``.
        worker: what it does.
        lease_s: after which others take over, above 0.
    """
    lease_ms = round(lease_s * 1000)
    await connection.execute(f"SET application_name = 'steersman {worker}'")
    await connection.execute(f"SET idle_in_transaction_session_timeout = {lease_ms}")
    if not _is_old(connection):
        await connection.execute(f"SET transaction_timeout = {_LEASES * lease_ms}")
    await connection.execute(f"SET lock_timeout = {max(1, lease_ms // 4)}")


async def end_unfinished(connection: Any, lease_s: float) -> int:
    """End sessions of the same work that stopped within a statement; on 17 and later do nothing.

    Those are meant from which nothing came for six leases while the server waited for the rest:
    who computes between statements is idle to the server, and who is computed for is not waited
    for.

    Args:
        connection: as `work_under_lease` left it, and within no transaction.
        lease_s: of all who do this work.

    Returns:
        How many were ended.
    """
    if not _is_old(connection):
        return 0
    async with connection.transaction():
        # Sessions are seen and ended by the user that they belong to, not by the role in use.
        await connection.execute("SET LOCAL ROLE NONE")
        ended: int = await connection.fetchval(_END_UNFINISHED, _LEASES * lease_s)
    return ended


async def allow_long(connection: Any) -> None:
    """Let the transaction under way last as long as there is work in it.

    One that idles is ended as before.

    Args:
        connection: as `work_under_lease` left it, within a transaction.
    """
    if not _is_old(connection):
        await connection.execute("SET LOCAL transaction_timeout = 0")


def _is_old(connection: Any) -> bool:
    major: int = connection.get_server_version().major
    return major < _WITH_TRANSACTION_TIMEOUT
