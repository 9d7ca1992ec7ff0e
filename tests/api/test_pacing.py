"""Pacing: what takes long is begun one by one, and everything else has its turn in between."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from steersman.db.declarations import declare
from steersman.serving.decide import Deciding
from steersman.serving.micro_batch import Pacing
from tests.api.test_selections import ASK, SELECT, rows_of


def _pacing(begun: list[int]) -> Pacing[int, int]:
    ticks = count()

    def begin(numbers):
        if numbers == [13]:
            raise LookupError(numbers)
        begun.extend(numbers)
        return numbers

    # Three ticks make a turn's two milliseconds: two are begun in each.
    return Pacing(begin, lambda _: None, clock=lambda: next(ticks) * 0.001)


async def test_a_turn_ends_by_time_and_whoever_waits_gets_one_at_a_time() -> None:
    begun: list[int] = []
    pacing = _pacing(begun)
    waiting = [pacing.add([1, 2, 3, 4, 5]), pacing.add([10]), pacing.add([])]
    seen = []
    while len(begun) < 6:
        seen.append(list(begun))
        await asyncio.sleep(0)
    assert seen == [[], [1, 10], [1, 10, 2, 3]]
    assert await asyncio.gather(*waiting) == [[1, 2, 3, 4, 5], [10], []]
    assert await pacing.add([6]) == [6]


async def test_an_error_and_a_caller_that_went_are_their_own_affair() -> None:
    begun: list[int] = []
    pacing = _pacing(begun)
    waiting = [pacing.add(numbers) for numbers in ([1, 13, 2], [3], [4, 5])]
    waiting[1].cancel()
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
        deciding = Deciding(
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
