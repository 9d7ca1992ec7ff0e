"""Circuit breaker: opens after failures, probes and closes."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from steersman.errors import StoreError
from steersman.platform.breaker import Breaker, GivenUp
from steersman.platform.postgres.database import store_breaker, store_is_away
from steersman.wire import Problem, Refused


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def fails() -> None:
    raise ConnectionResetError


async def works() -> int:
    return 7


async def hangs() -> None:
    await asyncio.sleep(60)


async def is_wrong() -> None:
    raise KeyError


async def refused(breaker: Breaker, make) -> bool:
    try:
        await breaker.call(make)
    except Refused as error:
        return error.problem.status == 503 and bool(error.problem.retry_after_s)
    return False


async def test_it_opens_after_failures_in_a_row_alone() -> None:
    breaker = store_breaker(Clock(), failures=3)
    for make in (fails, fails, works, fails, fails):
        assert await refused(breaker, make) == (make is fails)
        assert breaker.state == "closed"
    assert await refused(breaker, fails)
    assert (breaker.state, breaker.opened) == ("open", 1)
    assert await refused(breaker, works)
    assert breaker.refused == 1


async def test_one_call_probes_and_decides() -> None:
    clock = Clock()
    breaker = store_breaker(clock, failures=1, open_s=2)
    assert await refused(breaker, fails)
    clock.now = 2.0
    assert await refused(breaker, fails)  # the probe fails
    assert (breaker.state, breaker.opened) == ("open", 2)
    assert await refused(breaker, works)
    clock.now = 4.0
    probe = asyncio.create_task(breaker.call(works))
    await asyncio.sleep(0)
    assert await probe == 7
    assert breaker.state == "closed"


async def test_while_one_probes_the_others_are_refused() -> None:
    clock = Clock()
    breaker = store_breaker(clock, failures=1, open_s=2)
    assert await refused(breaker, fails)
    clock.now = 2.0
    go = asyncio.Event()

    async def slowly() -> int:
        await go.wait()
        return 7

    probe = asyncio.create_task(breaker.call(slowly))
    await asyncio.sleep(0)
    assert breaker.state == "half_open"
    assert await refused(breaker, works)
    go.set()
    assert await probe == 7
    assert await breaker.call(works) == 7


async def test_a_probe_whose_caller_goes_away_is_made_again() -> None:
    clock = Clock()
    breaker = store_breaker(clock, failures=1, open_s=2)
    assert await refused(breaker, fails)
    clock.now = 2.0
    probe = asyncio.create_task(breaker.call(hangs))
    await asyncio.sleep(0)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert await breaker.call(works) == 7


async def test_hanging_is_failing() -> None:
    breaker = store_breaker(Clock(), failures=1, timeout_s=0.01)
    assert await refused(breaker, hangs)
    assert breaker.state == "open"


async def test_errors_that_are_answers_do_not_open_it() -> None:
    breaker = store_breaker(Clock(), failures=1)
    with pytest.raises(KeyError):
        await breaker.call(is_wrong)
    assert breaker.state == "closed"


def test_what_counts_as_away() -> None:
    outage = StoreError("cannot connect")
    outage.__cause__ = ConnectionRefusedError()
    for error in (
        outage,
        TimeoutError(),
        asyncpg.exceptions.CannotConnectNowError("starting"),
        asyncpg.exceptions.AdminShutdownError("stopping"),
        asyncpg.exceptions.DiskFullError("full"),
        asyncpg.InterfaceError("closed"),
    ):
        assert store_is_away(error)
    for error in (StoreError("no such key"), asyncpg.exceptions.UniqueViolationError("two")):
        assert not store_is_away(error)


async def test_what_was_given_up_neither_opens_nor_closes() -> None:
    async def given_up() -> None:
        raise GivenUp(Problem.of("unavailable", "it took too long; wait", retry_after_s=5.0))

    clock = Clock()
    breaker = store_breaker(clock, failures=2)
    for make in (fails, given_up, fails):
        assert await refused(breaker, make)
    assert breaker.state == "open", "two failed in a row, and what was given up says nothing of it"
    clock.now = 10.0
    assert await refused(breaker, given_up)
    assert breaker.state == "open"
    assert await breaker.call(works) == 7
    assert breaker.state == "closed"


async def test_calls_that_hung_before_it_opened_do_not_keep_it_open() -> None:
    clock = Clock()
    breaker = store_breaker(clock, failures=2, open_s=2)
    go = asyncio.Event()

    async def fails_late() -> None:
        await go.wait()
        raise ConnectionResetError

    late = [asyncio.create_task(refused(breaker, fails_late)) for _ in range(5)]
    await asyncio.sleep(0)
    for _ in range(2):
        assert await refused(breaker, fails)
    clock.now = 1.9
    go.set()
    assert all(await asyncio.gather(*late))
    clock.now = 2.0
    assert await breaker.call(works) == 7


@pytest.mark.parametrize("goes_away", [False, True])
async def test_calls_of_before_the_probe_neither_end_it_nor_open_again(goes_away: bool) -> None:
    clock = Clock()
    breaker = store_breaker(clock, failures=2, open_s=2)
    go, answered = asyncio.Event(), asyncio.Event()

    async def fails_late() -> None:
        await go.wait()
        raise ConnectionResetError

    async def slowly() -> int:
        await answered.wait()
        return 7

    late = [asyncio.create_task(refused(breaker, fails_late)) for _ in range(5)]
    await asyncio.sleep(0)
    for _ in range(2):
        assert await refused(breaker, fails)
    clock.now = 2.0
    probe = asyncio.create_task(breaker.call(slowly))
    await asyncio.sleep(0)
    if goes_away:
        late[0].cancel()
        await asyncio.gather(late[0], return_exceptions=True)
        assert breaker.state == "half_open"
        assert await refused(breaker, works)
    answered.set()
    assert await probe == 7
    go.set()
    await asyncio.gather(*late, return_exceptions=True)
    assert (breaker.state, breaker.opened) == ("closed", 1)
