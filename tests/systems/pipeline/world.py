"""Simulated assistant traffic in a real store: what was routed where, and what came of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.features import FeatureMap
from steersman.learn import StoredBases
from steersman.registry import Consumer
from steersman.store import DecisionRow, as_tenant, declare, encode, log_decisions, log_events
from steersman.systems.assistant.points import point_documents
from steersman.systems.pipeline import SYSTEMS, Workshop, load_config
from steersman.wire import new_id
from tests.learn.shipping_world import registry_of
from tests.learn.world import happened, learn_all

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from steersman.store import Database, PointRow, Tenant

ASSISTANT = SYSTEMS["assistant"]
ROUTES = ("micro", "planner", "deep")
INTENTS = ("faq", "booking", "email", "chat")


def asked(rng: np.random.Generator) -> dict[str, Any]:
    """Return what is known of a request; a third of them are hard, which the engines half see."""
    hard = rng.random() < 1 / 3
    return {
        "intent": str(rng.choice(INTENTS)),
        "language": "sv" if rng.random() < 0.8 else "en",
        "guardian_state": "normal",
        "text_len": round(float(rng.gamma(4.0, 25.0))),
        "confidence": round(float(rng.normal(0.4 if hard else 0.5, 0.1)), 3),
        "score_gap": round(float(rng.normal(0.1 if hard else 0.3, 0.1)), 3),
        "agreement": float(rng.random() < (0.3 if hard else 0.7)),
    }


def came_of(context: dict[str, Any], route: str, rng: np.random.Generator) -> dict[str, float]:
    """Return outcomes: deep is right most often and slow, micro is quick and wrong on hard ones."""
    right = {"micro": 0.35, "planner": 0.75, "deep": 0.9}[route]
    right += 0.4 * (route == "micro") * context["agreement"]
    success = float(rng.random() < right)
    return {
        "success": success,
        "tool_ok": success,
        "latency_ms": {"micro": 50.0, "planner": 300.0, "deep": 1500.0}[route],
        "guardian_flag": 0.0,
    }


async def traffic(
    database: Database,
    row: PointRow,
    n: int,
    *,
    seed: int = 0,
    days: float = 5.0,
    earns: float | None = None,
    **changes: Any,
) -> None:
    """Write requests that were routed evenly over some days; all succeed as often as ``earns``."""
    rng = np.random.default_rng(seed)
    begun = time.time() - days * 86_400.0
    made, events = [], []
    for place in range(n):
        context, route = asked(rng), str(rng.choice(ROUTES))
        at = begun + place * days * 86_400.0 / n - 1000.0
        one = _decided(row, context, route, at)._replace(**changes)
        outcomes = came_of(context, route, rng)
        if earns is not None:
            outcomes |= dict.fromkeys(("success", "tool_ok"), float(rng.random() < earns))
        made.append(one)
        events.append(happened(one, outcomes, received_at=one.at))
    connection = await database.connect("app")
    try:
        await log_decisions(connection, made)
        await log_events(connection, events)
    finally:
        await connection.close()


def _decided(row: PointRow, context: dict[str, Any], route: str, at: float) -> DecisionRow:
    x, key = encode(row.spec, FeatureMap(row.spec.context), context)
    moment = datetime.fromtimestamp(at, UTC)
    return DecisionRow(
        tenant=row.tenant,
        id=new_id(at),
        skill=row.skill,
        point=row.point,
        episode=None,
        parent=None,
        unit=None,
        rollout=None,
        stage="live",
        arm="control",
        snapshot=row.snapshot,
        update_seq=0,
        spec_hash=row.spec_hash,
        feature_hash=row.feature_hash,
        context=context,
        eligible=None,
        distribution=[1 / 3] * 3,
        action=route,
        p=1 / 3,
        p_kind="exact",
        x=x.tolist(),
        key=key,
        features=None,
        u=0.5,
        degraded=False,
        weight=1.0,
        idempotency_key=None,
        body_hash=None,
        traceparent=None,
        at=moment,
        window_ends=moment + timedelta(seconds=row.spec.reward.window_s),
    )


async def assistant(
    database: Database, tenant: Tenant, root: Path, *, n: int = 3000, **options: Any
) -> Workshop:
    """Return what a pipeline works with: a tenant with keys whose routes have learned a log."""
    rows = [
        await declare(database, tenant.id, document, actor="test") for document in point_documents()
    ]
    if n:
        await traffic(database, rows[1], n, **options)
        await learn_all(database)
    return workshop(database, tenant, root)


def workshop(database: Database, tenant: Tenant, root: Path) -> Workshop:
    """Return what a pipeline works with, over the registry of a folder."""
    signer = registry_of(root, tenant)
    trusted = signer.keys.trusted_root.read_bytes()
    source = str(root / "registry" / tenant.name)
    return Workshop(
        database=database,
        tenant=tenant,
        actor="test",
        signer=signer,
        bases=StoredBases(),
        consumer=lambda cache: Consumer(source, trusted, cache),
    )


def config(root: Path, text: str = "", name: str = "pipeline.yaml") -> Any:
    """Return a configuration of some lines."""
    file = root / name
    file.write_text(text or "format: 1\n")
    return load_config(file)


async def tables(database: Database, tenant: UUID) -> dict[str, Any]:
    """Return every row of every table, as the owner of the database sees them."""
    connection = await database.connect("owner")
    try:
        names = await connection.fetch(
            "SELECT c.relname AS name FROM pg_class AS c JOIN pg_namespace AS n "
            "ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition "
            "AND n.nspname = current_schema() ORDER BY 1"
        )
        found = {}
        async with as_tenant(connection, tenant):
            for (name,) in names:
                found[name] = await connection.fetchval(
                    f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM \"{name}\" AS t"
                )
        return found
    finally:
        await connection.close()
