"""PostgreSQL stops under a running service and comes back: what is answered meanwhile."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from steersman.db.tenants import create_tenant
from steersman.platform.postgres.database import Database
from tests.clusters import copy_cluster

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


@pytest.fixture
def own(monkeypatch, cluster):
    """Return a database that the test may stop."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    home = Path(tempfile.mkdtemp(prefix="steersman-away-"))
    copy_cluster(cluster, home)
    made = Database.open(home)
    yield made
    with suppress(OSError):
        made.server.stop()


@pytest.mark.slow
def test_the_store_goes_and_comes_back(own, starter) -> None:
    async def run() -> None:
        tenant = await create_tenant(own, f"t-{uuid4().hex}", actor="test")
        async with starter(own, tenant)() as s:
            _, unseen = await s.new_key(own, tenant, name="unseen")
            decided = (await s.ask("POST", "/v1/decide", DECIDE)).body
            assert decided["logged"] is True
            await asyncio.to_thread(own.server.stop)
            records = await while_away(s, unseen, decided)
            await asyncio.to_thread(Database.open, own.server.home.parent)
            await after_return(s, unseen, decided, records)

    asyncio.run(run())


async def while_away(s, unseen: str, decided: dict) -> list[str]:
    bodies = [{**DECIDE, "deadline_ms": 200} for _ in range(5)]
    answers = [await s.ask("POST", "/v1/decide", body) for body in bodies]
    assert {answer.status for answer in answers} == {200}
    told = [(answer.body["logged"], answer.body["degraded"]) for answer in answers]
    assert set(told) <= {("unknown", False), (False, True)}
    assert (False, True) in told
    for _ in range(8):  # until breakers are open, and while they are
        assert (await s.ask("POST", "/v1/decide", DECIDE, key=unseen)).status == 503
        assert (await s.ask("GET", "/rl-status")).status == 503
        assert (await s.ask("GET", "/v1/keys")).status == 503
        assert (await s.ask("POST", "/v1/keys", {"name": "n", "role": "observer"})).status == 503
        path = f"/v1/decisions/{decided['decision_id']}/explain"
        assert (await s.ask("GET", path)).status == 503
        assert (await s.ask("GET", "/readyz", key=None)).status == 503
        assert (await s.ask("GET", "/healthz", key=None)).status == 200
        assert (await s.ask("GET", "/metrics", key=None)).status == 200
    about = {"event_id": "e-1", "decision_id": decided["decision_id"]}
    events = [s.ask("POST", "/v1/task_result", {**about, "event_id": f"e-{i}"}) for i in range(3)]
    refused = await asyncio.gather(*events)
    assert {answer.status for answer in refused} == {503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    return [answer.body["record"] for answer in answers]


async def after_return(s, unseen: str, decided: dict, records: list[str]) -> None:
    async def ready() -> bool:
        return (await s.ask("GET", "/readyz", key=None)).status == 200

    async def known() -> bool:
        return (await s.ask("POST", "/v1/decide", DECIDE, key=unseen)).status == 200

    async def logged() -> bool:
        return (await s.ask("POST", "/v1/decide", DECIDE)).body["logged"] is True

    for holds in (ready, known, logged):
        for _ in range(300):
            if await holds():
                break
            await asyncio.sleep(0.1)
        assert await holds()
    event = {"event_id": "e-9", "decision_id": decided["decision_id"], "type": "task_result"}
    answer = await s.ask("POST", "/v1/events", {"records": records, "events": [event]})
    assert {result["status"] for result in answer.body["results"]} == {"stored"}
    assert (await s.ask("GET", "/rl-status")).status == 200
