"""The rows of the loop on disk: PostgreSQL, one tenant apart from the other, Parquet for the past."""

from __future__ import annotations

from steersman.store.database import Database, as_tenant, set_tenant, state_home
from steersman.store.decisions import DecisionRow, Taken, find_decision, log_decisions
from steersman.store.encoding import NO_KEY, encode, rounded
from steersman.store.events import EventRow, log_events
from steersman.store.group_commit import Expired, GroupCommit
from steersman.store.learning import UpdateRow, newest_state, updates_after
from steersman.store.migrate import make_partitions, migrate

__all__ = [
    "Database",
    "DecisionRow",
    "EventRow",
    "Expired",
    "GroupCommit",
    "NO_KEY",
    "Taken",
    "UpdateRow",
    "as_tenant",
    "encode",
    "find_decision",
    "log_decisions",
    "log_events",
    "make_partitions",
    "migrate",
    "newest_state",
    "rounded",
    "set_tenant",
    "state_home",
    "updates_after",
]
