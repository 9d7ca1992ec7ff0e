"""A store that is slow, hangs or is gone: answers come in time, and everything arrives once."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import asynccontextmanager

import pytest

from steersman.client import AsyncClient
from tests.faults.checks import check_learning, check_promises, settled
from tests.faults.traffic import traffic

REQUEST = {
    "skill": "search",
    "decision": "depth",
    "context": {"intent": "a", "length": 0.5},
}


@asynccontextmanager
async def _locked(database, table):
    """Hold a table so that nobody can write to it."""
    connection = await database.connect(None)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f"LOCK TABLE steersman.{table} IN ACCESS EXCLUSIVE MODE")
    try:
        yield
    finally:
        await transaction.rollback()
        await connection.close()


async def _rows(database, query, *arguments):
    connection = await database.connect(None)
    try:
        return await connection.fetch(query, *arguments)
    finally:
        await connection.close()


async def _until_logged(asking, body, url=None):
    """Ask with the same key until the answer is durable."""
    for _ in range(200):
        status, answer = await asking.post("/v1/decide", body, url=url)
        assert status == 200
        if answer["logged"] is True:
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError(answer)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["decision", "idempotency"])
async def test_past_the_deadline_the_drawn_action_is_answered_and_retries_agree(made, table):
    access = await made.tenant("one")
    await asyncio.to_thread(made.start_service)
    async with traffic(made, access) as asking:
        assert (await asking.decide(keyed=True))["logged"] is True
        body = {**REQUEST, "idempotency_key": "k-1", "deadline_ms": 150}
        async with _locked(made.database, table):
            begun = time.monotonic()
            answers = [await asking.post("/v1/decide", body)]
            assert time.monotonic() - begun < 2
            answers += await asyncio.gather(*[asking.post("/v1/decide", body) for _ in range(4)])
            other = {**body, "context": {"intent": "b"}}
            assert (await asking.post("/v1/decide", other))[0] == 409
        assert [(status, answer["logged"]) for status, answer in answers] == [(200, "unknown")] * 5
        answers += [(200, await _until_logged(asking, body)) for _ in range(2)]
        for _, answer in answers:
            asking.note(answer, "k-1")
        assert len({(a["decision_id"], a["action"], a["propensity"]) for _, a in answers}) == 1
        # Its record says the same: sending it changes nothing.
        await asking.report(answers[0][1], {"success": 1})
        await check_promises(made.database, access, asking.ledger)
        assert (
            len(await _rows(made.database, "SELECT FROM decision WHERE tenant = $1", access.tenant))
            == 2
        )


@pytest.mark.slow
async def test_two_services_that_were_asked_with_one_key_agree_once_the_store_answers(made):
    access = await made.tenant("one")
    for name in ("left", "right"):
        await asyncio.to_thread(made.start_service, name)
    async with traffic(made, access) as asking:
        for url in made.urls:
            await asking.decide(keyed=False, url=url)
        async with _locked(made.database, "idempotency"):
            for number in range(10):
                body = {**REQUEST, "idempotency_key": f"k-{number}", "deadline_ms": 50}
                for url in made.urls:
                    status, answer = await asking.post("/v1/decide", body, url=url)
                    assert (status, answer["logged"]) == (200, "unknown")
                    asking.note(answer)
        for number in range(10):
            body = {**REQUEST, "idempotency_key": f"k-{number}", "deadline_ms": 50}
            said = [await _until_logged(asking, body, url) for url in made.urls * 2]
            for answer in said:
                asking.note(answer, f"k-{number}")
            assert len({(answer["decision_id"], answer["action"]) for answer in said}) == 1
        await check_promises(made.database, access, asking.ledger)
        stored = await _rows(made.database, "SELECT FROM decision WHERE idempotency_key LIKE 'k-_'")
        assert len(stored) == 10


@pytest.mark.slow
async def test_a_server_that_stands_still_holds_up_no_answer(made):
    access = await made.tenant("one")
    await asyncio.to_thread(made.start_service)
    made.start_learner()
    async with traffic(made, access, timeout_s=20) as asking:
        async with asking.flowing(clients=4):
            await asyncio.sleep(0.5)
            for pause in (0.7, 3.0):
                made.signal_postgres(signal.SIGSTOP)
                try:
                    for _ in range(5):
                        begun = time.monotonic()
                        answer = await asking.decide(keyed=False)
                        assert answer["logged"] in {"unknown", False}
                        assert time.monotonic() - begun < 2
                    await asyncio.sleep(pause)
                finally:
                    made.signal_postgres(signal.SIGCONT)
                await asyncio.sleep(0.5)
        await settled(made.database, access)
        await check_promises(made.database, access, asking.ledger)
        await check_learning(made.database, access)


@pytest.mark.slow
async def test_what_was_decided_and_reported_while_the_server_was_gone_arrives_once(made):
    access = await made.tenant("one")
    await asyncio.to_thread(made.start_service)
    queue = made.home / "queue"
    async with AsyncClient(made.url("service"), access.key, queue_dir=queue) as client:
        decisions = [await client.decide("search", "depth", {"intent": "a"})]
        await asyncio.to_thread(made.stop_postgres)
        decisions += [await client.decide("search", "depth", {"intent": i}) for i in "abcd" * 10]
        made.kill("service")
        more = {"default": "deep", "timeout_ms": 50}
        decisions += [await client.decide("search", "depth", {}, **more) for _ in range(10)]
        for decision in decisions:
            await client.submit_feedback(decision, outcomes={"success": 1})
        await asyncio.to_thread(made.start_postgres)
        await asyncio.to_thread(made.start_service)
        assert await client.flush(60) == 0
        assert await client.refused() == []
    degraded = [decision.degraded for decision in decisions]
    assert sum(degraded) >= 45
    stored = await _rows(
        made.database,
        "SELECT d.id, d.action, d.p, d.p_kind, count(e.id) AS events FROM decision AS d "
        "LEFT JOIN event AS e ON e.tenant = d.tenant AND e.decision = d.id "
        "WHERE d.tenant = $1 GROUP BY d.id, d.action, d.p, d.p_kind",
        access.tenant,
    )
    assert {row["events"] for row in stored} == {1}
    told = {d.decision_id: (d.action, d.propensity) for d in decisions}
    assert {row["id"]: (row["action"], row["p"]) for row in stored} == told
    assert {row["p_kind"] for row in stored} == {"exact", "fallback", "client"}
    made.start_learner()
    await settled(made.database, access)
    await check_learning(made.database, access)
