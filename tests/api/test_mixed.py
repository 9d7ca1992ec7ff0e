"""A mixed point from its declaration to what it learned: served, explained, learned, rolled out."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from steersman.db.decisions import DecisionRow
from steersman.db.declarations import declare
from steersman.db.points import find_declared
from steersman.db.tenants import create_tenant
from steersman.learning.rebuild import rebuild
from steersman.learning.replica import load, replay
from steersman.learning.verify import verify
from steersman.ope import evaluate
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import build
from steersman.rollouts.candidate import Candidate
from steersman.rollouts.candidate_evidence import Shadow, logged_choices, logged_data, shadow
from steersman.spec.loader import loads
from tests.api.shipping import Shipping
from tests.learning.world import bits, learn_all

MIXED = """
format: 1
skill: rag
decision: retrieval
context: {dim: 8, fields: {category: {type: category}}}
actions:
  kind: mixed
  parts:
    variant: {type: categorical, values: [bm25, dense, hybrid]}
    k: {type: integer, low: 3, high: 6, scale: log}
    rerank: {type: boolean}
    weight: {type: real, low: 0, high: 1, points: 5}
  barred: [{variant: dense, rerank: true}]
policy: {algorithm: factored_ts, contextual: true}
floor: 0.2
fallback: {otherwise: {variant: bm25, k: 3, rerank: false, weight: 0}}
reward: {terms: {quality: {weight: 1}}, window_s: 600}
budgets: {deadline_ms: 20000}
"""
ASK = {"skill": "rag", "decision": "retrieval", "context": {"category": "howto"}}
SPEC = loads(MIXED)


async def decide(s, count=1, **more):
    requests = [{**ASK, **more} for _ in range(count)]
    answer = await s.ask("POST", "/v1/decide", {"requests": requests})
    return answer.body["decisions"]


async def reward(s, decided, worth):
    for n, one in enumerate(decided):
        event = {"event_id": f"e-{one['decision_id']}", "decision_id": one["decision_id"]}
        quality = float(worth(one["parts"], n))
        answer = await s.ask("POST", "/v1/task_result", {**event, "outcomes": {"quality": quality}})
        assert answer.status == 200, answer


async def taught(s, database, count=30):
    decided = await decide(s, count)
    await reward(s, decided, lambda parts, _: 0.2 + 0.6 * (parts["variant"] == "hybrid"))
    await learn_all(database)
    return decided


async def rows_of(database, tenant):
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        rows = await connection.fetch("SELECT * FROM decision WHERE skill = 'rag' ORDER BY id")
    await connection.close()
    return [DecisionRow(**row) for row in rows]


async def test_a_configuration_is_answered_with_the_mass_of_all_its_parts(
    serving, database, tenant
):
    await declare(database, tenant.id, MIXED, actor="test")
    async with serving() as s:
        decided = await decide(s, 40)
        policy = s.replica("rag", "retrieval").policy
        rows = {str(row.id): row for row in await rows_of(database, tenant)}
        for one in decided:
            row = rows[one["decision_id"]]
            expected = policy.distribution(np.array(row.x, np.float64))
            place = SPEC.actions.names.index(one["action"])
            assert row.p == one["propensity"] == expected[place] >= 0.2 / 100
            assert json.loads(one["action"]) == one["parts"]
            assert one["logged"] is True
            assert not (one["parts"]["variant"] == "dense" and one["parts"]["rerank"])
            # Of every value of every part, and no list of a hundred configurations.
            assert set(one["distribution"]) == set(SPEC.actions.marginals)
            for part in SPEC.actions.order:
                masses = [p for name, p in one["distribution"].items() if name.startswith(part)]
                assert sum(masses) == pytest.approx(1.0, abs=1e-5)


async def test_eligible_parts_the_fallback_and_one_key_twice(serving, database, tenant):
    await declare(database, tenant.id, MIXED, actor="test")
    async with serving() as s:
        some = ['{"variant":"bm25","k":4}', '{"variant":"hybrid","rerank":false}']
        for one in await decide(s, 30, eligible=some):
            parts = one["parts"]
            held = (parts["variant"], parts["k"]) == ("bm25", 4)
            assert held or (parts["variant"], parts["rerank"]) == ("hybrid", False)
        (refused,) = await decide(s, eligible=['{"variant":"sparse"}'])
        assert refused["problem"]["status"] == 422
        assert "variant is 'sparse'" in refused["problem"]["detail"]
        first = await decide(s, idempotency_key="one", eligible=some)
        assert await decide(s, idempotency_key="one", eligible=some) == first
        s.service.guard.tick = lambda: None
        s.service.guard.state = type(s.service.guard.state).LOCKDOWN
        (fallen,) = await decide(s)
        assert (fallen["degraded"], fallen["propensity"]) == (True, 1.0)
        assert fallen["parts"] == {"variant": "bm25", "k": 3, "rerank": False, "weight": 0.0}
        assert list(fallen["distribution"]) == [fallen["action"]]
        (fallen,) = await decide(s, eligible=['{"variant":"hybrid","k":5}'])
        assert (fallen["parts"]["variant"], fallen["parts"]["k"]) == ("hybrid", 5)


async def test_it_learns_explains_and_is_the_same_to_the_byte_everywhere(serving, database, tenant):
    row = await declare(database, tenant.id, MIXED, actor="test")
    async with serving() as s:
        decided = await taught(s, database)
        await s.until(lambda: s.replica("rag", "retrieval").seq == 30)
        (later,) = await decide(s)
        told = (
            await s.ask("GET", f"/v1/decisions/{later['decision_id']}/explain?recompute=true")
        ).body
        assert told["recomputed"]["same"] is True, told["recomputed"]
        assert told["recomputed"]["distribution"][later["action"]] == later["propensity"]
        assert told["parts"] == later["parts"]
        first = (
            await s.ask("GET", f"/v1/decisions/{decided[0]['decision_id']}/explain?recompute=true")
        ).body
        assert (first["update_seq"], first["recomputed"]["same"]) == (0, True)
        served = s.replica("rag", "retrieval")
        connection = await database.connect("worker")
        async with as_tenant(connection, tenant.id):
            row = await find_declared(connection, (tenant.id, "rag", "retrieval"))
            loaded, replayed = await load(connection, row), await replay(connection, row)
        await connection.close()
        assert bits(loaded.policy) == bits(replayed.policy) == bits(served.policy)
        assert (await verify(database, row)).holds
        before = bits(served.policy)
        rebuilt = await rebuild(database, row, actor="test")
        assert (rebuilt.kept, rebuilt.lost) == (30, 0)
        await s.until(lambda: s.replica("rag", "retrieval").snapshot == rebuilt.snapshot)
        assert bits(s.replica("rag", "retrieval").policy) == before
        x = np.array((await rows_of(database, tenant))[0].x, np.float64)
        mass = s.replica("rag", "retrieval").policy.distribution(x)
        hybrid = sum(p for p, n in zip(mass, SPEC.actions.names, strict=True) if "hybrid" in n)
        assert hybrid > 0.6


async def test_its_log_judges_another_configuration(serving, database, tenant):
    await declare(database, tenant.id, MIXED, actor="test")
    async with serving() as s:
        decided = await decide(s, 600)
        await reward(s, decided, lambda parts, _: 0.3 + 0.5 * (parts["variant"] == "hybrid"))
        await learn_all(database)
        connection = await database.connect("worker")
        async with as_tenant(connection, tenant.id):
            point = tenant.id, "rag", "retrieval"
            closed = await connection.fetchval("SELECT now() + interval '1 hour'")
            logged = await logged_choices(connection, point, closed=closed)
        await connection.close()
    assert len(logged) == 600
    uniform = loads(MIXED.replace("factored_ts, contextual: true}\nfloor: 0.2", "factored_ts}\n"
                                  "floor: 0.9"))  # fmt: skip
    policy = build(uniform.policy, uniform.actions.names, dim=8, floor=0.9, mixed=uniform.actions)
    candidate = Candidate.of(policy, uniform)
    data = logged_data(candidate, logged)
    # What a service draws has no seed: at .95 one run in twenty would miss the truth.
    report = evaluate(data, estimators=("snips", "dr"), level=0.9999)
    weights = policy.distribution(None)
    truth = sum(
        p * (0.8 if "hybrid" in name else 0.3)
        for p, name in zip(weights, uniform.actions.names, strict=True)
    )
    assert data.target.shape == (600, 2)
    assert not report.refused, report.reasons
    assert report["dr"].low < truth < report["dr"].high
    seen = Shadow()
    shadow(candidate, logged[:20], seen, target_ms=1e9)
    assert (seen.decisions, seen.failures) == (20, 0)


async def test_a_tuned_configuration_is_tried_by_units_against_what_serves(
    serving, database, tenant
):
    await declare(database, tenant.id, MIXED, actor="test")
    tuned = "{algorithm: fixed, action: {variant: hybrid, k: 5, rerank: true, weight: 0.25}}"
    other = MIXED.replace("{algorithm: factored_ts, contextual: true}", tuned)
    other = other.replace("floor: 0.2", "floor: 0.05")
    async with serving() as s:
        await taught(s, database)
        ships = Shipping(database, tenant.id, tenant.name, s.home)
        ships.point = lambda: point_of(database, tenant)
        version = (await ships.publish(spec=other)).version
        await ships.start(version, "ab", 0.5)
        seen = {}
        async with asyncio.timeout(20):
            while len(seen) < 2:
                requests = [{**ASK, "unit": f"u-{n}"} for n in range(60)]
                answer = await s.ask("POST", "/v1/decide", {"requests": requests})
                for one in answer.body["decisions"]:
                    seen.setdefault(one["arm"], []).append(one)
        likely = SPEC.actions.name_of({"variant": "hybrid", "k": 5, "rerank": True, "weight": 0.25})
        got = [one for one in seen["candidate"] if one["action"] == likely]
        assert len(got) > 0.8 * len(seen["candidate"])
        assert got[0]["propensity"] == pytest.approx(0.95 + 0.05 / 100)


async def point_of(database, tenant):
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        row = await find_declared(connection, (tenant.id, "rag", "retrieval"))
    await connection.close()
    return row


async def test_another_tenant_has_no_such_point(serving, database, tenant):
    await declare(database, tenant.id, MIXED, actor="test")
    async with serving() as s:
        other = await create_tenant(database, f"{tenant.name}-other", actor="test")
        _, key = await s.new_key(database, other)
        (mine,) = await decide(s)
        answer = await s.ask("POST", "/v1/decide", ASK, key=key)
        assert answer.status == 404
        nobodys = await s.ask("POST", "/v1/decide", {**ASK, "skill": "nobodys"}, key=key)
        assert answer.body["detail"].replace("rag", "nobodys") == nobodys.body["detail"]
        told = await s.ask("GET", f"/v1/decisions/{mine['decision_id']}/explain", key=key)
        assert told.status == 404
