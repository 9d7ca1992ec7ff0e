"""A decision explains itself, and its distribution comes out of the state of that time again."""

from __future__ import annotations

from uuid import uuid4

import pytest

from steersman.db.declarations import declare
from steersman.platform.postgres.database import as_tenant
from steersman.serving.load_guard import GuardianState

JOINT = """
format: 1
skill: search
decision: passage
context: {dim: 8, fields: {}}
actions: {kind: choice, open: true, features: [score, length]}
policy: {algorithm: joint_lin_ts}
floor: 0.05
fallback: {rules: [], otherwise: first}
reward: {terms: {clicked: {weight: 1}}}
budgets: {deadline_ms: 20000}
"""
BETA = """
format: 1
skill: search
decision: tier
context: {dim: 8, fields: {intent: {type: category}}}
actions: {kind: choice, names: [a, b, c]}
policy: {algorithm: beta_thompson, key: intent}
floor: 0.03
fallback: {rules: [], otherwise: a}
reward: {terms: {clicked: {weight: 1}}}
budgets: {deadline_ms: 20000}
"""
DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


async def explain(s, identifier: str, query: str = ""):
    return await s.ask("GET", f"/v1/decisions/{identifier}/explain{query}")


async def test_all_that_is_known_is_told(serving) -> None:
    async with serving() as s:
        body = {**DECIDE, "episode_id": "ep-1", "unit": "u-1", "eligible": ["deep", "shallow"]}
        decided = (await s.ask("POST", "/v1/decide", body)).body
        event = {"event_id": "e-1", "decision_id": decided["decision_id"], "body": {"a": [1]}}
        await s.ask("POST", "/v1/feedback.submit", {**event, "outcomes": {"clicked": 1}})
        await s.ask("POST", "/v1/task_result", {"event_id": "e-2", "episode_id": "ep-1"})
        told = (await explain(s, decided["decision_id"])).body
        same = ("decision_id", "action", "propensity", "distribution", "snapshot", "update_seq")
        assert {name: told[name] for name in same} == {name: decided[name] for name in same}
        assert told["context"] == body["context"]
        assert (told["episode_id"], told["unit"]) == ("ep-1", "u-1")
        assert 0 <= told["uniform"] < 1
        abouts = [(event["event_id"], event["about"]) for event in told["events"]]
        assert abouts == [("e-1", "decision"), ("e-2", "episode")]
        assert told["events"][0]["outcomes"] == {"clicked": 1.0}
        assert not any("unread" in event for event in told["events"])
        assert "recomputed" not in told
        assert "erased" not in told


async def test_outcomes_that_the_reward_does_not_read_are_named(serving) -> None:
    async with serving() as s:
        decided = (await s.ask("POST", "/v1/decide", DECIDE)).body
        sent = {"outcomes": {"clickd": 1, "latency_ms": 12.5, "clicked": 0}}
        about = {"event_id": "e-1", "decision_id": decided["decision_id"]}
        await s.ask("POST", "/v1/task_result", {**about, **sent})
        (event,) = (await explain(s, decided["decision_id"])).body["events"]
        assert event["unread"] == ["clickd", "latency_ms"]


@pytest.mark.parametrize(
    ("document", "body"),
    [
        (None, {"eligible": ["deep", "shallow"]}),
        (
            JOINT,
            {
                "decision": "passage",
                "context": {},
                "eligible": ["p1", "p2", "p3"],
                "features": {"p1": [0.1, 3], "p2": [0.7, 9], "p3": [0.4, 1]},
            },
        ),
        (BETA, {"decision": "tier"}),
        (BETA, {"decision": "tier", "context": {}, "eligible": ["c", "b"]}),
    ],
    ids=["linear", "joint", "beta", "beta-eligible"],
)
async def test_the_distribution_comes_out_again_after_learning(
    serving, database, tenant, document, body
) -> None:
    async with serving() as s:
        if document is not None:
            await declare(database, tenant.id, document, actor="test")
        asked = {**DECIDE, **body}
        for _ in range(3):
            decided = (await s.ask("POST", "/v1/decide", asked)).body
            told = (await explain(s, decided["decision_id"], "?recompute=true")).body
            assert told["recomputed"]["same"] is True, told
            await learn(s, database, tenant, decided["decision_id"])
        assert told["update_seq"] == 2


async def learn(s, database, tenant, identifier: str) -> None:
    """Write an update as the learner does, and wait until the service follows."""
    connection = await database.connect("owner")
    async with as_tenant(connection, tenant.id):
        row = await connection.fetchrow("SELECT * FROM decision WHERE id = $1", identifier)
        seq = await connection.fetchval(
            "UPDATE learner SET seq = seq + 1 WHERE skill = $1 AND point = $2 RETURNING seq",
            *(row["skill"], row["point"]),
        )
        await connection.execute(
            "INSERT INTO update (tenant, skill, point, snapshot, seq, decision, revision, x, key, "
            "action, reward_change, weight_change, weight, bucket) "
            "VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8, $9, 1, 1, 1, 0)",
            *(tenant.id, row["skill"], row["point"], row["snapshot"], seq, row["id"]),
            *(row["x"], row["key"], row["action"]),
        )
    await connection.execute("SELECT pg_notify('steersman_update', '')")
    await connection.close()
    await s.until(lambda: s.replica(row["skill"], row["point"]).seq == seq)


async def test_a_fallback_was_not_drawn(serving) -> None:
    async with serving() as s:
        s.service.guard.tick = lambda: None
        s.service.guard.state = GuardianState.LOCKDOWN
        record = (await s.ask("POST", "/v1/decide", DECIDE)).body
        s.service.guard.state = GuardianState.NORMAL
        await s.ask("POST", "/v1/events", {"records": [record["record"]]})
        told = (await explain(s, record["decision_id"], "?recompute=true")).body
        assert (told["degraded"], told["propensity_kind"]) == (True, "fallback")
        assert told["recomputed"]["same"] is False
        assert "fallback" in told["recomputed"]["reason"]


async def test_ids_that_are_not_ours_are_all_the_same(serving) -> None:
    async with serving() as s:
        answers = [
            await explain(s, str(uuid4())),
            await explain(s, "0"),
            await explain(s, "x" * 300),
            await explain(s, "%00"),
            await explain(s, "00000000-0000-0000-0000-000000000000"),
        ]
        assert {answer.status for answer in answers} == {404}
        assert all(answer.body == answers[0].body for answer in answers)


async def test_an_erased_decision_says_so_and_nothing_else(serving, database, tenant) -> None:
    async with serving() as s:
        decided = (await s.ask("POST", "/v1/decide", DECIDE)).body
        connection = await database.connect("owner")
        async with as_tenant(connection, tenant.id):
            await connection.execute("DELETE FROM decision WHERE id = $1", decided["decision_id"])
            await connection.execute(
                "INSERT INTO erasure (tenant, decision, reason) VALUES ($1, $2, 'asked')",
                *(tenant.id, decided["decision_id"]),
            )
        await connection.close()
        told = (await explain(s, decided["decision_id"], "?recompute=true")).body
        assert told == {"decision_id": decided["decision_id"], "erased": True}
