"""What tests of rollouts share: a rollout's row, and points served without a store."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from steersman.db.points import PointRow
from steersman.db.rollouts import RolloutRow
from steersman.features import FeatureMap
from steersman.learning.replica import Replica
from steersman.points.policy_factory import initial_policy
from steersman.rollouts.plan import plan_of
from steersman.serving.draw import ServedPoint
from steersman.spec.loader import loads
from tests.learning.world import learn_all

if TYPE_CHECKING:
    from steersman.serving.arms import Turn

DOCUMENT = """
format: 1
skill: search
decision: depth
context: {dim: 8, fields: {intent: {type: category}}}
actions: {kind: choice, names: [shallow, deep]}
policy: {algorithm: lin_ucb}
floor: 0.1
fallback: {rules: [], otherwise: shallow}
reward: {terms: {clicked: {weight: 1}}}
"""
TENANT = UUID(int=1)
SPEC = loads(DOCUMENT)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def a_rollout(stage: str = "ab", share: float = 0.25, **changes: Any) -> RolloutRow:
    """Return a rollout of 0.1.1 against 0.1.0, three updates after it."""
    row = RolloutRow(
        tenant=TENANT,
        id=UUID(int=7),
        skill="search",
        point="depth",
        status="running",
        stage=stage,
        step=0,
        share=share,
        salt="salt",
        candidate="0.1.1",
        control="0.1.0",
        control_seq=3,
        plan=plan_of(SPEC, salt="salt").to_json(),
        concurrent=False,
        started_at=AT,
        step_started_at=AT,
        ended_at=None,
        epoch=1,
        holder="",
        seen_at=AT,
        reason="",
    )
    return replace(row, **changes)


def serving(
    version: str = "0.1.0", *, seq: int = 0, likes: str = "", spec: Any = SPEC
) -> ServedPoint:
    """Return a point that has come to like an action, as a process would serve it."""
    features = FeatureMap(spec.context)
    row = PointRow(
        TENANT,
        spec.skill,
        spec.decision,
        spec,
        bytes.fromhex(spec.spec_hash),
        bytes.fromhex(features.hash),
        version,
        per_episode=False,
    )
    policy = initial_policy(spec)
    if likes:
        x = features.encode({"intent": "refund"}).astype(np.float32).astype(np.float64)
        for _ in range(5):
            policy.learn(x, likes, 1.0)
    return ServedPoint(Replica(row, policy, features, version, seq))


def who(turn: Turn) -> str:
    """Return who serves a turn, and whether it counts."""
    if turn.arm == "candidate":
        return "candidate"
    return "control" if turn.label.rollout else "aside"


DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


async def teach(s: Any, database: Any, count: int, *, bases: Any = None) -> None:
    """Decide, report and learn; `deep` earns more."""
    bodies = [{**DECIDE, "context": {"intent": f"i{n % 5}"}} for n in range(count)]
    made = (await s.ask("POST", "/v1/decide", {"requests": bodies})).body["decisions"]
    events = [
        {
            "event_id": f"e-{one['decision_id']}",
            "decision_id": one["decision_id"],
            "type": "feedback.submit",
            "outcomes": {"clicked": 0.9 if one["action"] == "deep" else 0.2},
        }
        for one in made
    ]
    results = (await s.ask("POST", "/v1/events", {"events": events})).body["results"]
    assert {one["status"] for one in results} == {"stored"}
    await learn_all(database, bases=bases)


async def decision(s: Any, **more: Any) -> dict[str, Any]:
    """Return a decision."""
    answer = await s.ask("POST", "/v1/decide", {**DECIDE, **more})
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.body
    return body


async def until(s: Any, *, within_s: float = 10.0, **wanted: Any) -> float:
    """Wait until decisions say so; return how long it took."""
    begun = time.monotonic()
    one = await decision(s)
    while {name: one[name] for name in wanted} != wanted:
        assert time.monotonic() - begun < within_s, one
        await asyncio.sleep(0.005)
        one = await decision(s)
    return time.monotonic() - begun
