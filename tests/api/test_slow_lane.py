"""Slow lane: selections are drawn one by one, and other requests in between."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from steersman.db.declarations import declare
from steersman.serving.decide import Decider
from steersman.serving.micro_batch import SlowLane
from tests.api.test_selections import ASK, SELECT, rows_of


async def answer(lane: SlowLane[int, int], begun: list[int]) -> None:
    """Answer all requests of a lane as the service does; 13 fails."""
    while lane:
        for entry, number in lane.take():
            if number == 13:
                entry.future.set_exception(LookupError(number))
                continue
            begun.append(number)
            entry.results.append(number)
            if len(entry.results) == len(entry.items):
                entry.future.set_result(entry.results)
        await asyncio.sleep(0)


def _lane() -> SlowLane[int, int]:
    ticks = count()
    # Three ticks make the two milliseconds of an iteration: two are begun in each.
    return SlowLane(clock=lambda: next(ticks) * 0.001)


async def test_take_ends_by_time_and_serves_requests_in_turn() -> None:
    begun: list[int] = []
    lane = _lane()
    waiting = [lane.put([1, 2, 3, 4, 5]), lane.put([10]), lane.put([])]
    task = asyncio.create_task(answer(lane, begun))
    seen = []
    while len(begun) < 6:
        seen.append(list(begun))
        await asyncio.sleep(0)
    assert seen == [[], [1, 10], [1, 10, 2, 3]]
    assert await asyncio.gather(*waiting) == [[1, 2, 3, 4, 5], [10], []]
    await task


async def test_take_skips_failed_and_cancelled_requests_only() -> None:
    begun: list[int] = []
    lane = _lane()
    waiting = [lane.put(numbers) for numbers in ([1, 13, 2], [3], [4, 5])]
    waiting[1].cancel()
    await answer(lane, begun)
    assert await waiting[2] == [4, 5]
    with pytest.raises(LookupError):
        await waiting[0]
    assert begun == [1, 4, 5]


async def test_one_selection_does_not_wait_for_another_ones_batch(serving, database, tenant):
    await declare(database, tenant.id, SELECT, actor="test")
    depth = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}
    async with serving() as s:
        await s.ask("POST", "/v1/decide", ASK)
        clock = count(1_800_000_000)  # so the moment of a row tells when it was begun
        deciding = Decider(
            s.service.replicas,
            s.service.decisions,
            s.service.pools.serving,
            b"0" * 32,
            clock=lambda: next(clock),
        )
        twice = {**ASK, "idempotency_key": "k", "deadline_ms": 20_000}
        batch, one = await asyncio.gather(
            deciding.decide_many(tenant.id, [twice, depth, {}, *[ASK] * 40, twice, depth]),
            deciding.decide(tenant.id, ASK),
        )
        assert [answer.logged for answer in [*batch[:2], *batch[3:], one]] == [True] * 45
        assert batch[2].status == 422
        assert batch[0] == batch[-2]
        assert batch[1].picked is None
        ids = [str(row.id) for row in sorted(await rows_of(database, tenant), key=lambda it: it.at)]
        assert len(ids) == 43
        late = [answer.decision_id for answer in batch[3:-2]]
        assert ids.index(str(one.decision_id)) < min(ids.index(str(it)) for it in late[2:])
