"""Turns: what comes together is begun together, as long as that holds up nothing else."""

from __future__ import annotations

import asyncio

from steersman.serving.micro_batch import Gathering


def _gathering(begun: list[int]) -> Gathering[int, int]:
    def begin(numbers):
        begun.append(len(numbers))
        return numbers

    return Gathering(begin, lambda _: None)


async def test_a_turn_takes_so_many_and_leaves_the_rest_for_the_next_round() -> None:
    begun: list[int] = []
    gathering = _gathering(begun)
    wanted = [list(range(n, n + 100)) for n in range(10)]
    waiting = [gathering.add(numbers) for numbers in wanted]
    rounds: list[int] = []
    while len(begun) < 5:
        rounds.append(len(begun))  # so often did the loop come round to us
        await asyncio.sleep(0)
    assert begun == [200] * 5
    assert set(rounds) == {0, 1, 2, 3, 4}
    assert await asyncio.gather(*waiting) == wanted


async def test_what_one_request_wants_is_never_torn_apart() -> None:
    begun: list[int] = []
    gathering = _gathering(begun)
    wanted = [[1], list(range(1000)), [2], [], [3]]
    waiting = [gathering.add(numbers) for numbers in wanted]
    assert await asyncio.gather(*waiting) == wanted
    assert begun == [1, 1000, 2]
    assert await gathering.add([4]) == [4]


async def test_what_came_while_the_rest_waited_has_its_turn() -> None:
    begun: list[int] = []
    gathering = _gathering(begun)
    waiting = [gathering.add([n] * 160) for n in range(3)]
    await waiting[0]
    waiting.append(gathering.add([3]))
    assert [len(them) for them in await asyncio.gather(*waiting)] == [160, 160, 160, 1]


async def test_a_turn_lasts_while_the_loop_has_other_work_but_not_for_ever() -> None:
    begun: list[int] = []
    now = 0.0

    def tick() -> float:  # every round of the loop takes a millisecond, being busy
        nonlocal now
        now += 0.001
        return now

    gathering = Gathering(lambda them: begun.append(len(them)) or them, lambda _: None, clock=tick)
    waiting = gathering.add([1])
    rounds = 0
    while not waiting.done():
        await asyncio.sleep(0)
        rounds += 1
    assert 3 <= rounds <= 6
    now = 1e16  # from here on rounds take no time that could be seen
    waiting = gathering.add([2])
    for _ in range(2):
        await asyncio.sleep(0)
    assert waiting.done()
    assert begun == [1, 1]
