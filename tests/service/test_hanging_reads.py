"""A store whose reads hang: who has to read from it before an answer is told soon, not never."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from steersman.store import create_tenant, declare
from tests.service.points import POINT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


@asynccontextmanager
async def _hanging(service: Any, breaker: str) -> AsyncIterator[None]:
    """Take all connections for reading, as queries that hang would."""
    service.breakers[breaker]._timeout_s = 0.3
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(service.pool.acquire())
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
        s.service.breakers["replaying"].succeeded()
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
