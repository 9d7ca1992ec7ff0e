"""A point of kind sequence, from its declaration to a rollout of what it learned."""

from __future__ import annotations

import asyncio
import json
import math

import numpy as np
import pytest

from steersman.client import AsyncClient, Client
from steersman.db.decisions import DecisionRow, done_in, offered_of
from steersman.db.declarations import declare
from steersman.db.points import find_declared
from steersman.db.tenants import create_tenant
from steersman.learning.rebuild import rebuild
from steersman.learning.replica import load, replay
from steersman.learning.verify import verify
from steersman.ope import evaluate
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import build, initial_policy
from steersman.policies.offered import Offered
from steersman.rollouts.candidate import Candidate
from steersman.rollouts.candidate_evidence import (
    Shadow,
    logged_choices,
    logged_data,
    off_policy,
    shadow,
)
from steersman.spec.loader import loads
from steersman_client.errors import InputError
from tests.api.shipping import Shipping
from tests.api.test_deciding_apart import locked
from tests.learning.world import bits, learn_all

SELECT = """
format: 1
skill: evidence
decision: select
context: {dim: 8, fields: {topic: {type: category}}}
actions: {kind: sequence, max_steps: 3, candidates: 6, features: [fused, title], vector: 2}
policy: {algorithm: sequence_linear, start: {fused: 0.2}, leading: 3, temperature: 0.1}
floor: 0.2
fallback: {otherwise: first}
reward: {terms: {answered: {weight: 1}}, window_s: 600}
budgets: {deadline_ms: 20000}
"""
NAMES = ["p1", "p2", "p3", "p4"]
FEATURES = {
    "p1": [0.9, 0.0, 1.0, 0.0],
    "p2": [0.7, 1.0, 0.9, 0.1],
    "p3": [0.5, 0.0, 0.0, 1.0],
    "p4": [0.1, 0.0, -1.0, 0.0],
    "p5": [0.3, 1.0, 0.5, 0.5],
}
ASK = {
    "skill": "evidence",
    "decision": "select",
    "context": {"topic": "history"},
    "eligible": NAMES,
    "features": FEATURES,
    "links": {"p2": ["p5", "p1"]},
}


async def decide(s, count=1, **more):
    requests = [{**ASK, **more} for _ in range(count)]
    answer = await s.ask("POST", "/v1/decide", {"requests": requests})
    assert answer.status == 200, answer
    return answer.body["decisions"]


async def reward(s, decided, worth):
    events = [
        {
            "event_id": f"e-{one['decision_id']}",
            "type": "task_result",
            "decision_id": one["decision_id"],
            "outcomes": {"answered": float(worth(one["picked"]))},
        }
        for one in decided
    ]
    for start in range(0, len(events), 500):
        answer = await s.ask("POST", "/v1/events", {"events": events[start : start + 500]})
        assert all(one["status"] == "stored" for one in answer.body["results"]), answer


def bridge(picked):
    """What only p5 can answer."""
    return 0.9 if "p5" in picked else 0.2


def bridges(policy):
    """How often a policy finds p5."""
    offered = Offered.of(NAMES, ASK["links"], np.array([FEATURES[f"p{n}"] for n in range(1, 6)]))
    rng = np.random.default_rng(0)
    return np.mean(["p5" in policy.select(offered, rng=rng).picked for _ in range(2_000)])


async def rows_of(database, tenant):
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        rows = await connection.fetch("SELECT * FROM decision WHERE point = 'select' ORDER BY id")
    await connection.close()
    return [DecisionRow(**row) for row in rows]


async def point_of(database, tenant):
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        row = await find_declared(connection, (tenant.id, "evidence", "select"))
    await connection.close()
    return row


async def explained(s, identifier):
    answer = await s.ask("GET", f"/v1/decisions/{identifier}/explain?recompute=true")
    return answer.body


async def test_a_selection_is_one_decision_with_exactly_its_steps(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        decided = await decide(s, 40)
        policy = s.replica("evidence", "select").policy
    rows = {str(row.id): row for row in await rows_of(database, tenant)}
    assert len(rows) == 40
    for one in decided:
        row = rows[one["decision_id"]]
        assert one["logged"] is True
        assert json.loads(one["action"]) == one["picked"]
        assert row.steps == one["steps"]
        assert row.links == ASK["links"]
        assert row.eligible == NAMES
        assert row.p == one["propensity"] == math.prod(step["p"] for step in one["steps"])
        assert "p5" not in one["picked"] or one["picked"].index("p5") > one["picked"].index("p2")
        offered = offered_of(row.eligible, row.links, row.features)
        assert offered.names == ("p1", "p2", "p3", "p4", "p5")
        assert policy.chance(offered, done_in(row.steps)) == row.p
        assert len(row.distribution) == sum(len(step["eligible"]) for step in row.steps)
        assert len(row.x) == 2 + 8 + 1
    assert any("p5" in one["picked"] for one in decided)
    assert any(len(one["steps"]) > len(one["picked"]) for one in decided), "some stopped"


async def test_one_key_twice_gets_its_steps_again_also_after_a_restart(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        first = await decide(s, idempotency_key="one")
        assert await decide(s, idempotency_key="one") == first
        twice = await decide(s, 2, idempotency_key="two")
        assert twice[0] == twice[1]
        (other,) = await decide(s, idempotency_key="one", context={})
        assert other["problem"]["status"] == 409
    async with serving() as s:
        assert await decide(s, idempotency_key="one") == first
        told = await explained(s, first[0]["decision_id"])
        assert told["recomputed"]["same"] is True


async def test_bad_requests_are_told_what_to_change(serving, database, tenant, subtests):
    bad = [
        ({"eligible": None}, "no candidates"),
        ({"eligible": []}, "eligible"),
        ({"eligible": ["p1", "p1"]}, "duplicate"),
        ({"eligible": ["p1", "stop"], "links": {}}, "rename"),
        ({"eligible": [f"p{n}" for n in range(7)]}, "at most 6 are declared"),
        ({"features": {**FEATURES, "p5": [0.1]}}, "expected 4"),
        ({"features": {k: FEATURES[k] for k in NAMES}}, "missing features for"),
        ({"features": {**FEATURES, "p9": FEATURES["p1"]}}, "not candidates"),
        ({"features": None}, "missing features for"),
        ({"features": {**FEATURES, "p1": [1e300, 0, 0, 0]}}, "not finite"),
        ({"features": {**FEATURES, "p1": [1e38, 0, 0, 0]}}, "fused of 'p1' is 1e+38"),
        ({"features": {**FEATURES, "p5": [0, -333_333, 0, 0]}}, "title of 'p5' is -333333"),
        ({"links": {"p7": ["p1"]}}, "not a candidate"),
        ({"links": {"p2": ["p8"]}}, "missing features for"),
        ({"links": ["p2"]}, "links"),
        ({"context": {"topic": ["a"]}}, "topic"),
    ]
    good = [
        {"features": {**FEATURES, "p1": [329_999, 0, 0, 0]}},
        {"features": {**FEATURES, "p1": [0.5, 0, 1e38, 0]}},
    ]
    await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        for wrong, message in bad:
            with subtests.test(str(wrong)[:80]):
                body = {
                    name: value for name, value in {**ASK, **wrong}.items() if value is not None
                }
                answer = await s.ask("POST", "/v1/decide", body)
                assert answer.status in {400, 422}, answer
                assert message in json.dumps(answer.body)
        for large in good:
            with subtests.test(str(large)[:80]):
                assert (await s.ask("POST", "/v1/decide", {**ASK, **large})).status == 200
        (again,) = await decide(s)
        assert again["logged"] is True
        assert len(await rows_of(database, tenant)) == 1 + len(good)


async def test_clients_of_both_kinds_ask_and_tell(serving, database, tenant, tmp_path):
    await declare(database, tenant.id, SELECT, actor="test")
    asked = {"eligible": NAMES, "features": FEATURES, "links": ASK["links"], "default": NAMES[:3]}
    async with serving() as s:
        url = f"http://127.0.0.1:{s.port}"

        def ask_and_tell():
            with Client(url, s.key, queue_dir=tmp_path / "sync", timeout_ms=20_000) as client:
                with pytest.raises(InputError, match="give the list"):
                    client.decide("evidence", "select", **{**asked, "default": "p1"})
                one = client.decide("evidence", "select", {"topic": "art"}, **asked)
                client.submit_feedback(one, outcomes={"answered": 1.0})
                client.flush()
                return one

        decided = [await asyncio.to_thread(ask_and_tell)]
        async with AsyncClient(url, s.key, queue_dir=tmp_path / "a", timeout_ms=20_000) as client:
            decided.append(await client.decide("evidence", "select", {"topic": "art"}, **asked))
            await client.submit_feedback(decided[-1], outcomes={"answered": 0.0})
            await client.flush()
        await learn_all(database)
        await s.until(lambda: s.replica("evidence", "select").seq == 2)
        told = [await explained(s, one.decision_id) for one in decided]
    assert [one["rewards"][-1]["value"] for one in told] == [1.0, 0.0]
    for one, row in zip(decided, await rows_of(database, tenant), strict=True):
        assert (one.logged, one.degraded) == (True, False)
        assert one.picked == json.loads(row.action)
        assert [step.p for step in one.steps] == [step["p"] for step in row.steps]


async def test_links_are_refused_elsewhere_and_bytes_that_are_no_numbers(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        depth = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}
        answer = await s.ask("POST", "/v1/decide", {**depth, "links": {"a": ["b"]}})
        assert (answer.status, "kind sequence" in answer.body["detail"]) == (422, True)
        text = json.dumps(ASK).replace("0.9", "NaN", 1).encode()
        assert (await s.ask("POST", "/v1/decide", text)).status == 400


async def test_candidates_all_alike_share_the_mass(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        alike = {name: [0.5, 0.5, 1.0, 0.0] for name in NAMES}
        (one,) = await decide(s, features=alike, links={})
        (row,) = await rows_of(database, tenant)
        first = one["steps"][0]["eligible"]
        assert first == ["p1", "p2", "p3", "stop"]
        assert len(set(row.distribution[:3])) == 1


async def test_the_fallback_takes_the_first_candidates(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        s.service.guard.tick = lambda: None
        s.service.guard.state = type(s.service.guard.state).LOCKDOWN
        (one,) = await decide(s, eligible=["p4", "p4", "p3", "p2", "p1"])
        assert (one["degraded"], one["propensity"], one["steps"]) == (True, 1.0, [])
        assert one["picked"] == ["p4", "p3", "p2"]
        s.service.guard.state = type(s.service.guard.state).NORMAL
        taken = await s.ask("POST", "/v1/events", {"records": [one["record"]]})
        assert taken.status == 200, taken
        assert taken.body["results"][0]["status"] == "stored"
        told = await explained(s, one["decision_id"])
        assert (told["picked"], told["steps"]) == (["p4", "p3", "p2"], [])
        assert told["recomputed"]["same"] is False


async def test_it_learns_explains_and_is_the_same_to_the_byte_everywhere(serving, database, tenant):
    row = await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        decided = await decide(s, 120)
        await reward(s, decided, bridge)
        await learn_all(database)
        await s.until(lambda: s.replica("evidence", "select").seq == 120)
        later = await decide(s, 3)
        learned = s.replica("evidence", "select").policy
        assert bridges(learned) > bridges(initial_policy(row.spec)) + 0.03
        for one in (decided[0], later[0]):
            told = await explained(s, one["decision_id"])
            assert told["recomputed"]["same"] is True, told["recomputed"]
            assert told["recomputed"]["largest_difference"] < 1e-6
            assert [step["p"] for step in told["steps"]] == [step["p"] for step in one["steps"]]
            for step, again in zip(told["steps"], told["recomputed"]["steps"], strict=True):
                assert sum(step["distribution"].values()) == pytest.approx(1.0, abs=1e-6)
                assert again["distribution"] == pytest.approx(step["distribution"], abs=1e-6)
        served = s.replica("evidence", "select")
        connection = await database.connect("worker")
        async with as_tenant(connection, tenant.id):
            row = await find_declared(connection, (tenant.id, "evidence", "select"))
            loaded, replayed = await load(connection, row), await replay(connection, row)
        await connection.close()
        assert bits(loaded.policy) == bits(replayed.policy) == bits(served.policy)
        assert (await verify(database, row)).holds
        before = bits(served.policy)
        rebuilt = await rebuild(database, row, actor="test")
        assert (rebuilt.kept, rebuilt.lost) == (120, 0)
        await s.until(lambda: s.replica("evidence", "select").snapshot == rebuilt.snapshot)
        assert bits(s.replica("evidence", "select").policy) == before


async def test_a_selection_that_was_not_followed_is_taken_back(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        decided = await decide(s, 5)
        await reward(s, decided, bridge)
        await learn_all(database)
        event = {"event_id": "did", "decision_id": decided[0]["decision_id"]}
        event |= {"action_taken": '["p4"]'}
        assert (await s.ask("POST", "/v1/interaction.output", event)).status == 200
        await learn_all(database)
        await s.until(lambda: s.replica("evidence", "select").seq == 6)
        assert s.replica("evidence", "select").policy.updates == 4


async def test_its_log_judges_another_selector(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        for _ in range(2):
            decided = await decide(s, 400)
            await reward(s, decided, bridge)
        await learn_all(database)
        connection = await database.connect("worker")
        async with as_tenant(connection, tenant.id):
            closed = await connection.fetchval("SELECT now() + interval '1 hour'")
            point = tenant.id, "evidence", "select"
            logged = await logged_choices(connection, point, closed=closed)
        await connection.close()
        other = loads(SELECT.replace("start: {fused: 0.2}", "start: {fused: 0.1, linked: 0.2}"))
        policy = build(other.policy, (), dim=0, floor=0.2, sequence=other.actions)
        candidate = Candidate.of(policy, other)
        data = logged_data(candidate, logged)
        # What a service draws has no seed: at .95 one run in twenty would miss the truth.
        report = evaluate(data, estimators=("ips", "snips"), level=0.9999)
        offered = offered_of(logged[0].eligible, logged[0].links, logged[0].features)
        rng = np.random.default_rng(0)
        truth = np.mean([bridge(policy.select(offered, rng=rng).picked) for _ in range(4000)])
        assert len(logged) == 800
        assert not report.refused, report.reasons
        assert report["snips"].low < truth < report["snips"].high
        told = off_policy(candidate, logged, gates=other.gates)
        assert told.value is not None, told.reasons
        far = loads(SELECT.replace("start: {fused: 0.2}", "start: {fused: -9}"))
        never = build(far.policy, (), dim=0, floor=0.001, sequence=far.actions)
        # About one in eight of its draws is worth something to it: 50 of 400, of the 100 it needs.
        assert off_policy(Candidate.of(never, far), logged[:400], gates=far.gates).reasons
        seen = Shadow()
        shadow(candidate, logged[:20], seen, target_ms=1e9)
        assert (seen.decisions, seen.failures) == (20, 0)


async def test_another_declaration_is_tried_by_units_against_what_serves(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    other = SELECT.replace("temperature: 0.1", "temperature: 0.01").replace(
        "floor: 0.2", "floor: 0.05"
    )
    async with serving() as s:
        decided = await decide(s, 60)
        await reward(s, decided, bridge)
        await learn_all(database)
        ships = Shipping(database, tenant.id, tenant.name, s.home)
        ships.point = lambda: point_of(database, tenant)
        version = (await ships.publish(spec=other)).version
        row = await ships.start(version, "ab", 0.5)
        seen = {}
        async with asyncio.timeout(20):
            while len(seen) < 2:
                requests = [{**ASK, "unit": f"u-{n}"} for n in range(60)]
                answer = await s.ask("POST", "/v1/decide", {"requests": requests})
                for one in answer.body["decisions"]:
                    seen.setdefault(one["arm"], []).append(one)
        one = seen["candidate"][0]
        assert one["snapshot"] == version
        assert min(step["p"] for step in one["steps"]) >= 0.05 / 4 - 1e-12
        told = await explained(s, one["decision_id"])
        assert told["recomputed"]["same"] is True, told["recomputed"]
        await ships.move(row, status="rolled_back")
        await ships.serve(version)
        await s.until(lambda: s.replica("evidence", "select").snapshot == version)
        (after,) = await decide(s)
        assert after["snapshot"] == version


async def test_the_record_of_a_large_selection_comes_back(serving, database, tenant):
    wide = SELECT.replace("candidates: 6", "candidates: 200").replace("vector: 2", "vector: 1024")
    await declare(database, tenant.id, wide, actor="test")
    names = [f"p{n}" for n in range(200)]
    features = {name: [0.1] * 1026 for name in names}
    large = {**ASK, "eligible": names, "features": features, "links": {}, "deadline_ms": 300}
    async with serving() as s:
        await decide(s, eligible=names[:1], features={"p0": [0.1] * 1026}, links={})
        async with locked(database):
            answer = await s.ask("POST", "/v1/decide", large)
            assert (answer.status, answer.body["logged"]) == (200, "unknown"), answer
        assert 1 << 20 < len(answer.body["record"]) < 5 << 18  # four bytes a number, in base64
        taken = await s.ask("POST", "/v1/events", {"records": [answer.body["record"]]})
        assert taken.body["results"][0]["status"] in {"stored", "replayed"}, taken
        await reward(s, [answer.body], bridge)


async def test_another_tenant_has_no_such_point(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    async with serving() as s:
        other = await create_tenant(database, f"{tenant.name}-other", actor="test")
        _, key = await s.new_key(database, other)
        (mine,) = await decide(s)
        answer = await s.ask("POST", "/v1/decide", ASK, key=key)
        assert answer.status == 404
        told = await s.ask("GET", f"/v1/decisions/{mine['decision_id']}/explain", key=key)
        assert told.status == 404
        await declare(database, other.id, SELECT, actor="test")
        theirs = await s.ask("POST", "/v1/decide", ASK, key=key)
        async with asyncio.timeout(10):
            while theirs.status == 404:  # what is not there is remembered for a moment
                await asyncio.sleep(0.1)
                theirs = await s.ask("POST", "/v1/decide", ASK, key=key)
        assert (theirs.status, theirs.body["update_seq"]) == (200, 0), theirs
        assert len(await rows_of(database, tenant)) == len(await rows_of(database, other)) == 1


async def test_what_was_done_instead_may_name_as_much_as_a_selection_can(serving, database, tenant):
    long = SELECT.replace("max_steps: 3, candidates: 6", "max_steps: 100, candidates: 101")
    await declare(database, tenant.id, long, actor="test")
    names = [f"{n:03d}" + '"' * 997 for n in range(100)]
    async with serving() as s:
        features = dict.fromkeys(names, FEATURES["p1"])
        (one,) = await decide(s, eligible=names, features=features, links={})
        event = {"event_id": "did", "decision_id": one["decision_id"]}
        event |= {"action_taken": json.dumps(names, separators=(",", ":"))}
        answer = await s.ask("POST", "/v1/interaction.output", event)
        assert answer.status == 200, answer
