"""The rows of the loop on disk: PostgreSQL, one tenant apart from the other, Parquet for the past."""

from __future__ import annotations

from steersman.store.audit import AuditRow, history, record
from steersman.store.database import Database, as_tenant, set_tenant, state_home
from steersman.store.decisions import DecisionRow, Taken, find_decision, log_decisions
from steersman.store.encoding import NO_KEY, encode, rounded
from steersman.store.events import EventRow, Verdict, log_events
from steersman.store.group_commit import Expired, GroupCommit
from steersman.store.keys import (
    ROLES,
    SCOPES,
    KeyRow,
    create_key,
    find_keys,
    list_keys,
    revoke_key,
    rotate_key,
)
from steersman.store.learning import UpdateRow, newest_state, updates_after
from steersman.store.migrate import make_partitions, migrate
from steersman.store.points import PointRow, declare, initial_policy, points_of
from steersman.store.secret import hash_key, load_secret
from steersman.store.states import pack_state, unpack_state
from steersman.store.tenants import Tenant, create_tenant, find_tenant, list_tenants

__all__ = [
    "NO_KEY",
    "ROLES",
    "SCOPES",
    "AuditRow",
    "Database",
    "DecisionRow",
    "EventRow",
    "Expired",
    "GroupCommit",
    "KeyRow",
    "PointRow",
    "Taken",
    "Tenant",
    "UpdateRow",
    "Verdict",
    "as_tenant",
    "create_key",
    "create_tenant",
    "declare",
    "encode",
    "find_decision",
    "find_keys",
    "find_tenant",
    "hash_key",
    "history",
    "initial_policy",
    "list_keys",
    "list_tenants",
    "load_secret",
    "log_decisions",
    "log_events",
    "make_partitions",
    "migrate",
    "newest_state",
    "pack_state",
    "points_of",
    "record",
    "revoke_key",
    "rotate_key",
    "rounded",
    "set_tenant",
    "state_home",
    "unpack_state",
    "updates_after",
]
