"""Requests that arrive together are drawn together; nobody notices but the clock."""

from __future__ import annotations

import asyncio
from uuid import UUID

import numpy as np

from steersman.db.decisions import find_decision
from steersman.features import FeatureMap
from steersman.platform.postgres.database import as_tenant
from steersman.serving import decide as deciding

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


async def test_a_batch_with_one_key_twice_is_one_decision(serving) -> None:
    async with serving() as s:
        keyed = {**DECIDE, "idempotency_key": "k-1"}
        other = {**keyed, "context": {"intent": "other"}}
        bodies = [keyed, DECIDE, keyed, other, {**DECIDE, "idempotency_key": "k-2"}]
        answer = await s.ask("POST", "/v1/decide", {"requests": bodies})
        first, free, twin, conflict, last = answer.body["decisions"]
        assert first == twin
        assert conflict["problem"]["code"] == "idempotency_conflict"
        assert len({one["decision_id"] for one in (first, free, last)}) == 3
        again = await s.ask("POST", "/v1/decide", keyed)
        assert again.body == first


async def test_a_key_whose_first_request_fails_is_free_for_the_second(serving) -> None:
    async with serving() as s:
        wrong = {**DECIDE, "context": {"unknown": 1}, "idempotency_key": "k-1"}
        bodies = [wrong, {**DECIDE, "idempotency_key": "k-1"}]
        answer = await s.ask("POST", "/v1/decide", {"requests": bodies})
        refused, decided = answer.body["decisions"]
        assert refused["problem"]["status"] == 422
        assert decided["logged"] is True


async def test_retries_at_the_same_time_get_one_answer(serving) -> None:
    async with serving() as s:
        bodies = [{**DECIDE, "idempotency_key": f"k-{n % 5}"} for n in range(40)]
        answers = await asyncio.gather(*(s.ask("POST", "/v1/decide", body) for body in bodies))
        for n, answer in enumerate(answers):
            assert answer.status == 200
            assert answer.body == answers[n % 5].body


async def test_an_earlier_answer_that_cannot_be_made_costs_the_others_none(
    serving, monkeypatch
) -> None:
    def fail(_document: str) -> None:
        raise LookupError("nobody thought of it")

    async with serving() as s:
        keyed = {**DECIDE, "idempotency_key": "k-1"}
        assert (await s.ask("POST", "/v1/decide", keyed)).status == 200
        monkeypatch.setattr(deciding, "declared", fail)
        answer = await s.ask("POST", "/v1/decide", {"requests": [keyed, DECIDE]})
        assert answer.status == 200, answer
        refused, decided = answer.body["decisions"]
        assert (refused["problem"]["status"], decided["logged"]) == (500, True)


async def test_a_key_whose_decision_left_the_hot_store_says_so(serving, database, tenant) -> None:
    async with serving() as s:
        keyed = {**DECIDE, "idempotency_key": "k-old"}
        decided = (await s.ask("POST", "/v1/decide", keyed)).body
        connection = await database.connect("owner")
        async with as_tenant(connection, tenant.id):  # as retention does; keys are kept longer
            await connection.execute(
                "DELETE FROM decision WHERE id = $1", UUID(decided["decision_id"])
            )
        await connection.close()
        again = await s.ask("POST", "/v1/decide", keyed)
        assert (again.status, again.body["field"]) == (409, "idempotency_key")
        assert "too old" in again.body["detail"]


async def test_what_was_drawn_together_is_what_one_alone_would_get(serving, database, tenant):
    async with serving() as s:
        bodies = [{**DECIDE, "context": {"intent": f"i{n % 7}"}} for n in range(60)]
        bodies[11]["eligible"] = ["deep"]
        bodies[12]["eligible"] = []
        bodies[13]["eligible"] = ["nobody"]
        answers = (await s.ask("POST", "/v1/decide", {"requests": bodies})).body["decisions"]
        assert (answers[12]["action"], answers[12]["degraded"]) == ("shallow", True)
        assert answers[13]["problem"]["status"] == 422
        assert answers[11]["distribution"] == {"deep": 1.0}
        replica = s.replica("search", "depth")
        connection = await database.connect("app")
        features = FeatureMap(replica.row.spec.context)
        for body, answer in zip(bodies, answers, strict=True):
            if body.get("eligible") is not None:
                continue
            x = features.encode(body["context"]).astype(np.float32).astype(np.float64)
            expected = replica.policy.distribution(x)
            place = ["shallow", "deep"].index(answer["action"])
            assert answer["propensity"] == expected[place]
            async with as_tenant(connection, tenant.id):
                u = await connection.fetchval(
                    "SELECT u FROM decision WHERE id = $1", answer["decision_id"]
                )
            assert (u < expected[0]) == (answer["action"] == "shallow")
        await connection.close()


async def test_requests_and_batches_of_one_turn_are_drawn_together(serving, database, tenant):
    async with serving() as s:
        bodies: list[object] = [DECIDE] * 30
        bodies += [{"requests": [DECIDE] * 3}] * 5
        answers = await asyncio.gather(*(s.ask("POST", "/v1/decide", body) for body in bodies))
        assert all(answer.status == 200 for answer in answers)
        connection = await database.connect("app")
        async with as_tenant(connection, tenant.id):
            rows = await connection.fetch("SELECT at, count(*) FROM decision GROUP BY at")
        await connection.close()
        assert sum(row["count"] for row in rows) == 45
        assert len(rows) < 35  # one time each, if every request were drawn by itself


async def test_a_batch_of_which_nothing_can_be_asked_is_answered(serving) -> None:
    async with serving() as s:
        wrong = {"requests": [{"skill": "search"}, {**DECIDE, "decision": "unknown"}]}
        answers = (await s.ask("POST", "/v1/decide", wrong)).body["decisions"]
        assert [one["problem"]["status"] for one in answers] == [422, 404]


async def test_rows_of_a_batch_are_all_there(serving, database, tenant) -> None:
    async with serving() as s:
        answers = (await s.ask("POST", "/v1/decide", {"requests": [DECIDE] * 30})).body
        connection = await database.connect("app")
        for answer in answers["decisions"]:
            row = await find_decision(connection, tenant.id, UUID(answer["decision_id"]))
            assert (row.action, row.p) == (answer["action"], answer["propensity"])
        await connection.close()


async def test_head_and_pipelined_requests_still_work(serving) -> None:
    async with serving() as s:
        head = b"HEAD /healthz HTTP/1.1\r\nhost: a\r\n\r\n"
        last = b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        get = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"
        said = await s.raw(head + get + last)
        assert said.count(b"HTTP/1.1 200 ") == 3
        old = await s.raw(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert old.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in old
