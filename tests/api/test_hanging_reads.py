"""A store whose reads hang: who has to read from it before an answer is told soon, not never."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from steersman.api.routes import rollout_plans as planning
from steersman.api.routes import status
from steersman.db.declarations import declare
from steersman.db.tenants import create_tenant
from tests.api.points import POINT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


@asynccontextmanager
async def _all_of(pool: Any) -> AsyncIterator[None]:
    """Take all connections of a pool, as queries that hang would."""
    async with AsyncExitStack() as stack:
        for _ in range(pool.get_max_size()):
            await stack.enter_async_context(pool.acquire())
        yield


@asynccontextmanager
async def _hanging(service: Any, breaker: str) -> AsyncIterator[None]:
    service.breakers[breaker]._timeout_s = 0.3
    async with _all_of(service.pools.serving):
        yield


async def test_an_earlier_answer_that_cannot_be_read_is_put_off(serving) -> None:
    body = {**DECIDE, "idempotency_key": "k", "deadline_ms": 9000}
    async with serving() as s:
        first = await s.ask("POST", "/v1/decide", body)
        async with _hanging(s.service, "replaying"):
            late = [await s.ask("POST", "/v1/decide", body) for _ in range(6)]
            assert {one.status for one in late} == {503}
            assert all(int(one.headers["retry-after"]) >= 1 for one in late)
            assert s.service.breakers["replaying"].state == "open"
            # Whoever needs no earlier answer does not notice.
            other = await s.ask("POST", "/v1/decide", {**DECIDE, "deadline_ms": 9000})
            assert (other.status, other.body["logged"]) == (200, True)
        s.service.breakers["replaying"].state = "closed"
        assert (await s.ask("POST", "/v1/decide", body)).body == first.body


async def test_points_that_cannot_be_loaded_are_put_off(serving, database) -> None:
    async with serving() as s:
        other = await create_tenant(database, f"o-{uuid4().hex}", actor="test")
        await declare(database, other.id, POINT, actor="test")
        _, key = await s.new_key(database, other)
        assert (await s.ask("GET", "/v1/keys", key=key)).status == 200
        async with _hanging(s.service, "loading"):
            assert (await s.ask("POST", "/v1/decide", DECIDE, key=key)).status == 503
            assert (await s.ask("POST", "/v1/decide", DECIDE, key=key)).status == 503
        assert (await s.ask("POST", "/v1/decide", DECIDE, key=key)).status == 200


async def test_what_takes_long_to_read_holds_up_neither_keys_nor_points_nor_readiness(
    serving, database, tenant
) -> None:
    async with serving() as s:
        row, revoked = await s.new_key(database, tenant)
        other = await create_tenant(database, f"o-{uuid4().hex}", actor="test")
        await declare(database, other.id, POINT, actor="test")
        _, theirs = await s.new_key(database, other)
        assert (await s.ask("POST", "/v1/decide", DECIDE, key=revoked)).status == 200
        async with _all_of(s.service.pools.reading):
            assert (await s.ask("GET", "/readyz", key=None)).status == 200
            # A key that was never seen, of a tenant that was never asked for.
            assert (await s.ask("POST", "/v1/decide", DECIDE, key=theirs)).status == 200
            assert (await s.ask("DELETE", f"/v1/keys/{row.id}")).status == 200
            await asyncio.sleep(1.0)
            assert (await s.ask("POST", "/v1/decide", DECIDE, key=revoked)).status == 401


async def test_how_much_a_tenant_logged_opens_no_breaker_that_others_ask_through(
    serving, monkeypatch
) -> None:
    reading, most = 0, 0

    async def read_for_ever(*_: Any, **__: Any) -> None:
        nonlocal reading, most
        reading, most = reading + 1, max(most, reading + 1)
        try:
            await asyncio.sleep(60)
        finally:
            reading -= 1

    def give_up_after(seconds: float) -> None:
        monkeypatch.setattr(planning, "READ_S", seconds)
        monkeypatch.setattr(status, "READ_S", seconds)

    monkeypatch.setattr(planning, "traffic_of", read_for_ever)
    monkeypatch.setattr(status, "counts_since", read_for_ever)
    give_up_after(0.5)  # long enough for both pages to have begun, on a loaded machine too
    asked = {"skill": "search", "decision": "depth"}
    async with serving() as s:
        flood = [s.ask("POST", "/v1/rollouts/plan", asked) for _ in range(6)]
        flood += [s.ask("GET", "/rl-status") for _ in range(6)]
        *late, seen = await asyncio.gather(*flood, s.ask("GET", "/v1/rollouts"))
        assert seen.status == 200
        give_up_after(0.05)
        late += [await s.ask("GET", "/rl-status") for _ in range(6)]
        late += [await s.ask("POST", "/v1/rollouts/plan", asked) for _ in range(6)]
        assert {one.status for one in late} == {503}
        assert all("within 0." in one.body["detail"] for one in late)
        assert most == 2, "one connection of a tenant for each page"
        assert s.service.breakers["reading"].state == "closed"
        # And what does open it is no reason to send no decisions here.
        s.service.breakers["reading"].state = "open"
        assert (await s.ask("GET", "/readyz", key=None)).status == 200
