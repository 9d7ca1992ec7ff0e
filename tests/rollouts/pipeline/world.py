"""Simulated assistant traffic in a real store: what was routed where, and what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.packed_events import log_events
from steersman.learning.replica import StoredBases
from steersman.points.systems import installed_systems
from steersman.registry.consumer import Consumer
from steersman.rollouts.pipeline.config import load_config
from steersman.rollouts.pipeline.reports import Workshop
from steersman_systems.assistant.points import point_documents
from tests.db.rows import connected, decision_of
from tests.learning.shipping_world import registry_of
from tests.learning.world import happened, learn_all

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

ASSISTANT = installed_systems()["assistant"]
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
    even: dict[str, Any] = {"distribution": [1 / 3] * 3, "p": 1 / 3}
    made, events = [], []
    for place in range(n):
        context, route = asked(rng), str(rng.choice(ROUTES))
        at = begun + place * days * 86_400.0 / n - 1000.0
        one = decision_of(row, context, route, at=at, **(even | changes))
        outcomes = came_of(context, route, rng)
        if earns is not None:
            outcomes |= dict.fromkeys(("success", "tool_ok"), float(rng.random() < earns))
        made.append(one)
        events.append(happened(one, outcomes, received_at=one.at))
    async with connected(database) as connection:
        await log_decisions(connection, made)
        await log_events(connection, events)


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
    async with connected(database, "owner", tenant) as connection:
        names = await connection.fetch(
            "SELECT c.relname AS name FROM pg_class AS c JOIN pg_namespace AS n "
            "ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition "
            "AND n.nspname = current_schema() ORDER BY 1"
        )
        return {
            name: await connection.fetchval(
                f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM \"{name}\" AS t"
            )
            for (name,) in names
        }
