"""Evaluations wait in lines: few of a tenant, all tenants in turns."""

from __future__ import annotations

import asyncio
import threading
import time
from uuid import uuid4

import pytest

from steersman.service.tuner_line import Line, Slices
from steersman.wire import Refused

ONE, OTHER = uuid4(), uuid4()


async def test_of_one_tenant_few_wait_and_others_still_come_in():
    line, go = Line(of_tenant=2, most=3), threading.Event()
    ran = []

    async def asked(tenant, name):
        with line.place(tenant):
            await line.run(tenant, lambda: (go.wait(10), ran.append(name)), threading.Event())

    begun = [asyncio.create_task(asked(ONE, name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="2 evaluations of yours run or wait already") as refused:
        await asked(ONE, "third")
    assert refused.value.problem.retry_after_s >= 1.0
    begun.append(asyncio.create_task(asked(OTHER, "other")))
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="3 evaluations run or wait already"):
        await asked(uuid4(), "fourth")
    go.set()
    await asyncio.gather(*begun)
    assert sorted(ran) == ["first", "other", "second"]
    assert ran.index("first") < ran.index("second")
    await asked(ONE, "third")  # there is room again
    line.close()


async def test_of_one_tenant_one_runs_at_a_time_and_beside_it_that_of_another():
    line, inside, most = Line(), [], []
    guard = threading.Lock()

    def work(tenant):
        with guard:
            inside.append(tenant)
            most.append(list(inside))
        time.sleep(0.05)
        with guard:
            inside.remove(tenant)

    async def asked(tenant):
        with line.place(tenant):
            await line.run(tenant, lambda: work(tenant), threading.Event())

    await asyncio.gather(*(asked(tenant) for tenant in (ONE, ONE, ONE, OTHER, OTHER)))
    assert all(len(set(now)) == len(now) for now in most)
    assert any(len(now) == 2 for now in most)
    line.close()


async def test_who_goes_away_lets_the_thread_end_before_the_next_begins():
    line, ended, stop = Line(), [], threading.Event()

    def work():
        stop.wait(10)
        time.sleep(0.05)
        ended.append("first")

    async def asked(work, stop):
        with line.place(ONE):
            return await line.run(ONE, work, stop)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await asked(work, stop)
    assert stop.is_set()
    assert ended == []
    assert await asked(lambda: list(ended), threading.Event()) == ["first"]
    line.close()


async def test_an_error_is_told_and_frees_the_turn():
    line = Line()

    def work():
        raise ValueError("no")

    for _ in range(2):
        with line.place(ONE), pytest.raises(ValueError, match="no"):
            await line.run(ONE, work, threading.Event())
    assert (line._inside, line._turns) == ({}, {})
    line.close()


def test_slices_go_round():
    slices, order = Slices(), []
    begun = threading.Barrier(3)

    def work(name):
        begun.wait()
        slices.take()
        for _ in range(20):
            order.append(name)
            time.sleep(0.001)
            slices.give()
            slices.take()
        slices.give()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    middle = order[6:50]
    for start in range(len(middle) - 3):
        assert len(set(middle[start : start + 3])) == 3
