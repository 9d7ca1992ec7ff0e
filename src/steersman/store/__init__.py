"""The rows of the loop on disk: PostgreSQL, each tenant apart, and Parquet for the past."""

from __future__ import annotations

from steersman.store.audit import AuditRow, history, record
from steersman.store.backup import Backup, backup, restore
from steersman.store.crediting import (
    Decided,
    Happened,
    Learned,
    RewardRow,
    append_rewards,
    decisions_to_credit,
    erased_among,
    events_about,
    learned_of,
    spec_of,
)
from steersman.store.database import Database, as_tenant, set_tenant, state_home
from steersman.store.decisions import DecisionRow, Taken, find_decision, log_decisions
from steersman.store.encoding import NO_KEY, encode, rounded
from steersman.store.erasure import Erased, erase, export
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
from steersman.store.learning import (
    UpdateRow,
    append_updates,
    newest_state,
    tell_replicas,
    updates_after,
    write_checkpoint,
)
from steersman.store.migrate import make_partitions, migrate
from steersman.store.points import PointRow, declare, initial_policy, points_of
from steersman.store.retention import Kept, exported, keep
from steersman.store.secret import hash_key, load_secret
from steersman.store.states import pack_state, unpack_state
from steersman.store.tenants import Tenant, create_tenant, find_tenant, list_tenants
from steersman.store.work import (
    Fence,
    Point,
    WorkRow,
    claim,
    due_work,
    fence,
    holder_of,
    keep_claims,
    queue_work,
    take_work,
)

__all__ = [
    "NO_KEY",
    "ROLES",
    "SCOPES",
    "AuditRow",
    "Backup",
    "Database",
    "Decided",
    "DecisionRow",
    "Erased",
    "EventRow",
    "Expired",
    "Fence",
    "GroupCommit",
    "Happened",
    "Kept",
    "KeyRow",
    "Learned",
    "Point",
    "PointRow",
    "RewardRow",
    "Taken",
    "Tenant",
    "UpdateRow",
    "Verdict",
    "WorkRow",
    "append_rewards",
    "append_updates",
    "as_tenant",
    "backup",
    "claim",
    "create_key",
    "create_tenant",
    "decisions_to_credit",
    "declare",
    "due_work",
    "encode",
    "erase",
    "erased_among",
    "events_about",
    "export",
    "exported",
    "fence",
    "find_decision",
    "find_keys",
    "find_tenant",
    "hash_key",
    "history",
    "holder_of",
    "initial_policy",
    "keep",
    "keep_claims",
    "learned_of",
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
    "queue_work",
    "record",
    "restore",
    "revoke_key",
    "rotate_key",
    "rounded",
    "set_tenant",
    "spec_of",
    "state_home",
    "take_work",
    "tell_replicas",
    "unpack_state",
    "updates_after",
    "write_checkpoint",
]
