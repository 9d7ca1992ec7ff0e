"""Evaluations wait in lines: few of a tenant, all tenants in turns."""

from __future__ import annotations

import asyncio
import threading
import time
from uuid import uuid4

import pytest

from steersman.errors import DataError
from steersman.wire import Refused
from steersman_systems.rag_tuner.service.fair_queue import Line, Slices

ONE, OTHER = uuid4(), uuid4()


async def test_of_one_tenant_few_wait_and_others_still_come_in():
    line, go = Line(of_tenant=2, most=3), threading.Event()
    ran = []

    async def asked(tenant, name):
        with line.place(tenant):
            await line.run(tenant, lambda: (go.wait(10), ran.append(name)), threading.Event())

    begun = [asyncio.create_task(asked(ONE, name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    with pytest.raises(
        Refused, match="2 evaluations of this tenant are already running or waiting"
    ) as refused:
        await asked(ONE, "third")
    assert refused.value.problem.retry_after_s >= 1.0
    begun.append(asyncio.create_task(asked(OTHER, "other")))
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="3 evaluations are already running or waiting"):
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


def shared(turns, seconds, threads=None):
    """Return who had how many turns, when the first one had all of its own."""
    now, order, over = [0.0], [], threading.Event()
    slices = Slices(lambda: now[0])
    shares = {name: slices.share(threading.Event()) for name in seconds}
    crew = [name for name in seconds for _ in range((threads or {}).get(name, 1))]
    begun = threading.Barrier(len(crew))

    def others_wait():
        with slices._guard:
            return sum(map(len, slices._waiting.values())) == len(crew) - 1

    def work(name):
        begun.wait()
        with shares[name].turn() as turn:
            while not over.is_set():
                order.append(name)
                now[0] += seconds[name]
                if order.count(name) >= turns[name]:
                    over.set()
                while not (over.is_set() or others_wait()):
                    time.sleep(0.0005)
                turn.again()

    each = [threading.Thread(target=work, args=(name,)) for name in crew]
    for one in each:
        one.start()
    for one in each:
        one.join()
    return {name: order.count(name) for name in seconds}


def test_slices_go_round_by_time_and_not_by_turns_or_threads():
    even = shared({"a": 20, "b": 20}, {"a": 1.0, "b": 1.0})
    assert abs(even["a"] - even["b"]) <= 2
    slow = shared({"a": 60, "b": 60}, {"a": 1.0, "b": 5.0})
    assert abs(slow["a"] / slow["b"] - 5) < 1
    many = shared({"a": 20, "b": 20}, {"a": 1.0, "b": 1.0}, {"a": 4})
    assert abs(many["a"] - many["b"]) <= 3


def test_who_was_away_saves_nothing_up():
    now = [0.0]
    slices = Slices(lambda: now[0])
    one, other = (slices.share(threading.Event()) for _ in range(2))
    for _ in range(5):
        with one.turn():
            now[0] += 1.0
    with other.turn():
        now[0] += 1.0
    assert 4.0 <= other.reached <= 6.0


def test_who_waits_for_a_turn_and_is_stopped_goes_away():
    slices, stop = Slices(), threading.Event()
    with slices.share(threading.Event()).turn():
        stop.set()
        with pytest.raises(DataError, match="stopped while it waited"), slices.share(stop).turn():
            pass
    with slices.share(threading.Event()).turn() as turn, turn.left():
        assert not slices._busy
    assert (slices._busy, slices._waiting) == (False, {})


async def test_how_long_those_of_others_take_is_not_told():
    line, go = Line(of_tenant=1, most=1), threading.Event()
    line._took_s[OTHER] = 40.0

    async def asked(tenant):
        with line.place(tenant):
            await line.run(tenant, lambda: go.wait(10), threading.Event())

    begun = asyncio.create_task(asked(OTHER))
    await asyncio.sleep(0)
    with pytest.raises(Refused) as theirs:
        await asked(ONE)
    assert theirs.value.problem.retry_after_s == 5.0
    with pytest.raises(Refused) as own:
        await asked(OTHER)
    assert own.value.problem.retry_after_s == 40.0
    go.set()
    await begun
    line.close()
