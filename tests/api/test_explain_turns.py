"""States are built again in turns: no tenant holds up others, or opens a breaker for them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from uuid import uuid4

from steersman.db.declarations import declare
from steersman.db.tenants import create_tenant
from steersman.serving import explain as explaining
from tests.api.points import POINT

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


@asynccontextmanager
async def builds_that_hang(s, database, tenant, monkeypatch):
    """Let the states of `tenant` be built when told; yield that, and two tenants' questions."""
    go, build = asyncio.Event(), explaining.Explainer._rebuild

    async def building(self, row, document):
        if row.tenant == tenant.id:
            await go.wait()
        return await build(self, row, document)

    monkeypatch.setattr(explaining.Explainer, "_rebuild", building)
    other = await create_tenant(database, f"o-{uuid4().hex}", actor="test")
    await declare(database, other.id, POINT, actor="test")
    _, key = await s.new_key(database, other)
    own = (await s.ask("POST", "/v1/decide", DECIDE)).body["decision_id"]
    its = (await s.ask("POST", "/v1/decide", DECIDE, key=key)).body["decision_id"]

    async def ask(identifier=own, key=""):
        path = f"/v1/decisions/{identifier}/explain?recompute=true"
        async with asyncio.timeout(10):
            return await s.ask("GET", path, key=key)

    try:
        yield go, ask, lambda: ask(its, key)
    finally:
        go.set()


async def test_a_tenant_whose_states_take_long_holds_up_nobody_else(
    serving, database, tenant, monkeypatch
) -> None:
    async with (
        serving() as s,
        builds_that_hang(s, database, tenant, monkeypatch) as (go, ask, other),
    ):
        waiting = [asyncio.create_task(ask()) for _ in range(5)]
        refused, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        (refused,) = [task.result() for task in refused]
        assert (refused.status, refused.body["code"]) == (503, "unavailable")
        assert "4 rebuilds of this tenant" in refused.body["detail"]
        assert int(refused.headers["retry-after"]) >= 1
        told = await other()
        assert (told.status, told.body["recomputed"]["same"]) == (200, True)
        go.set()
        answers = await asyncio.gather(*waiting)
        assert all(one.body["recomputed"]["same"] for one in answers)
        assert (await ask()).status == 200  # there is room again


async def test_states_that_take_too_long_are_given_up_and_no_breaker_opens(
    serving, database, tenant, monkeypatch
) -> None:
    async with (
        serving() as s,
        builds_that_hang(s, database, tenant, monkeypatch) as (_, ask, other),
    ):
        breaker = s.service.breakers["rebuilding"]
        breaker._timeout_s = 5.0
        with monkeypatch.context() as short:
            short.setattr(explaining, "_BUILD_S", 0.05)
            late = [await ask() for _ in range(6)]
        assert {one.status for one in late} == {503}
        assert all("not rebuilt within 0.05 s" in one.body["detail"] for one in late)
        assert breaker.state == "closed"
        assert (await other()).body["recomputed"]["same"] is True


async def test_who_waits_too_long_for_a_turn_is_put_off(
    serving, database, tenant, monkeypatch
) -> None:
    async with (
        serving() as s,
        builds_that_hang(s, database, tenant, monkeypatch) as (go, ask, _),
    ):
        first = asyncio.create_task(ask())
        await asyncio.sleep(0.2)
        monkeypatch.setattr(explaining, "_WAIT_S", 0.05)
        late = await ask()
        assert (late.status, int(late.headers["retry-after"]) >= 1) == (503, True)
        go.set()
        assert (await first).body["recomputed"]["same"] is True
        assert (await ask()).status == 200


async def test_a_store_that_is_away_opens_the_breaker_of_rebuilding(serving, monkeypatch) -> None:
    async def away(self, row, document):
        raise TimeoutError

    async with serving() as s:
        monkeypatch.setattr(explaining.Explainer, "_rebuild", away)
        own = (await s.ask("POST", "/v1/decide", DECIDE)).body["decision_id"]
        path = f"/v1/decisions/{own}/explain?recompute=true"
        late = [await s.ask("GET", path) for _ in range(6)]
        assert {one.status for one in late} == {503}
        assert s.service.breakers["rebuilding"].state == "open"
