"""Micro-batches: requests that come together are drawn together, and hold up nothing else."""

from __future__ import annotations

import asyncio

from steersman.serving.micro_batch import MicroBatch

Numbers = MicroBatch[int, int]


async def answer(batch: Numbers, sizes: list[int]) -> None:
    """Answer all requests of a queue as the service does; list the sizes of its batches."""
    while batch:
        await batch.ready()
        entries = batch.take()
        sizes.append(sum(len(entry.items) for entry in entries))
        for entry in entries:
            entry.future.set_result([*entry.items])
        await asyncio.sleep(0)


async def test_take_with_many_requests_leaves_some_for_the_next_iteration() -> None:
    sizes: list[int] = []
    batch: Numbers = MicroBatch()
    wanted = [list(range(n, n + 100)) for n in range(10)]
    waiting = [batch.put(numbers) for numbers in wanted]
    task = asyncio.create_task(answer(batch, sizes))
    rounds: list[int] = []
    while len(sizes) < 5:
        rounds.append(len(sizes))  # so often did the loop come round to us
        await asyncio.sleep(0)
    assert sizes == [200] * 5
    assert set(rounds) == {0, 1, 2, 3, 4}
    assert await asyncio.gather(*waiting) == wanted
    await task


async def test_take_with_a_large_request_keeps_it_whole() -> None:
    sizes: list[int] = []
    batch: Numbers = MicroBatch()
    wanted = [[1], list(range(1000)), [2], [], [3]]
    waiting = [batch.put(numbers) for numbers in wanted]
    await answer(batch, sizes)
    assert await asyncio.gather(*waiting) == wanted
    assert sizes == [1, 1000, 2]
    waiting = [batch.put([4])]
    await answer(batch, sizes)
    assert await waiting[0] == [4]


async def test_put_while_others_wait_joins_the_queue() -> None:
    sizes: list[int] = []
    batch: Numbers = MicroBatch()
    waiting = [batch.put([n] * 160) for n in range(3)]
    task = asyncio.create_task(answer(batch, sizes))
    await waiting[0]
    waiting.append(batch.put([3]))
    assert [len(them) for them in await asyncio.gather(*waiting)] == [160, 160, 160, 1]
    await task


async def test_ready_while_the_loop_is_busy_waits_a_few_milliseconds() -> None:
    now = 0.0

    def tick() -> float:  # every iteration of the loop takes a millisecond, being busy
        nonlocal now
        now += 0.001
        return now

    sizes: list[int] = []
    batch: Numbers = MicroBatch(clock=tick)
    for limits in ((3, 6), (1, 2)):
        waiting = batch.put([1])
        task = asyncio.create_task(answer(batch, sizes))
        rounds = 0
        while not waiting.done():
            await asyncio.sleep(0)
            rounds += 1
        assert limits[0] <= rounds <= limits[1]
        await task
        now = 1e16  # from here on iterations take no time that could be seen
    assert sizes == [1, 1]
