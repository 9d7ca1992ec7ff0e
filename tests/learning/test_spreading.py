"""Local parallel map: order and random streams for any number of processes.

On a cluster: ``tests/deploy/test_ray.py``.
"""

import logging
import multiprocessing
import os
import socket
import sys
import time

import numpy as np
import pytest

from steersman.errors import ClusterError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.training.parallel_map import spread


def drawn(item, rng):
    return item, rng.random(3).tobytes()


def whose(_item):
    return os.getpid()


def refused(item):
    if item == 2:
        message = "item 2 is refused"
        raise InputError(message)
    return item


def test_results_come_in_order_each_with_draws_of_its_own():
    found = list(spread(drawn, "abc", seed=7))
    assert [item for item, _ in found] == ["a", "b", "c"]
    expected = [np.random.default_rng([7, place]).random(3).tobytes() for place in range(3)]
    assert [numbers for _, numbers in found] == expected


@pytest.mark.slow
def test_processes_give_the_same_to_the_byte():
    assert list(spread(drawn, range(5), seed=7, processes=2)) == list(
        spread(drawn, range(5), seed=7)
    )
    assert os.getpid() not in set(spread(whose, range(4), processes=2))


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_a_function_raises_is_raised_in_its_place(processes):
    told = spread(refused, range(4), processes=processes)
    assert [next(told), next(told)] == [0, 1]
    with pytest.raises(InputError, match="item 2 is refused"):
        next(told)


@pytest.mark.slow
def test_a_process_that_ends_is_told_and_not_waited_for():
    with pytest.raises(ClusterError, match=r"ended before item 0 .* fewer processes"):
        list(spread(os._exit, [1], processes=2))


@pytest.mark.slow
def test_what_is_not_taken_is_not_waited_for():
    told = spread(time.sleep, [0.0, 60.0], processes=2)
    next(told)
    begun = time.monotonic()
    told.close()
    deadline = begun + 20
    while multiprocessing.active_children():
        assert time.monotonic() < deadline, "it still sleeps"
        time.sleep(0.02)


def test_without_ray_it_says_so_and_works_here(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray.exceptions", raising=False)
    with caplog.at_level(logging.WARNING):
        assert list(spread(drawn, range(3), seed=1, address="auto")) == list(
            spread(drawn, range(3), seed=1)
        )
    (said,) = caplog.messages
    assert "Ray is not installed" in said
    assert how_to_install("ray") in said


@pytest.mark.parametrize(
    "wrong", [{"processes": 0}, {"seed": -1}, {"address": "nonsense"}, {"address": "here:80/x"}]
)
def test_numbers_out_of_range_are_refused_at_once(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        spread(drawn, [1], **wrong)


def test_a_cluster_that_is_not_there_is_said_soon():
    pytest.importorskip("ray", reason="`tools/install ray` installs it")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterError, match="ray start --head"):
            list(spread(abs, [1], address=address))
