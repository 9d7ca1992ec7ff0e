"""One function over many items: here, in processes, or on a Ray cluster, with the same results."""

from __future__ import annotations

import logging
import re
import socket
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from steersman.errors import ClusterError, InputError
from steersman.errors.installing import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    T = TypeVar("T")
    R = TypeVar("R")

_log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"auto|(ray://)?[^/]+:\d{1,5}")
_ANSWERS_S = 5.0
_RETRIES = 5
"""A node may be lost so often under one item; what kills every process it runs in must end."""


@overload
def spread(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    address: str | None = None,
    seed: None = None,
    processes: int = 1,
) -> Iterator[R]: ...


@overload
def spread(
    function: Callable[[T, np.random.Generator], R],
    items: Sequence[T],
    *,
    address: str | None = None,
    seed: int,
    processes: int = 1,
) -> Iterator[R]: ...


def spread(
    function: Callable[..., R],
    items: Sequence[T],
    *,
    address: str | None = None,
    seed: int | None = None,
    processes: int = 1,
) -> Iterator[R]:
    """Return what a function gives for each of some items, in their order.

    Where an item is worked on changes nothing: each has a generator of its own, drawn from the seed
    and its number. On other processors floating-point results agree to about 1e-9, on the same
    kind to the byte. An item whose node dies is worked on again elsewhere, so the function must
    leave nothing behind that would then be there twice.

    Args:
        function: Of an item, and of a generator if there is a seed. It travels once, with all that
            it is partial over; other processes and nodes must be able to import it.
        items: What it is called with, each by itself.
        address: Of a Ray cluster: ``auto`` on one of its nodes, or ``HOST:PORT`` of its head. None
            works here. Without the package `ray` it says so in the log, and works here as well.
        seed: ≥ 0; without it the function draws nothing.
        processes: Of this machine, where no cluster is named, ≥ 1.

    Returns:
        Results as they come, in the order of the items. What is not taken is not waited for.

    Raises:
        InputError: A seed, a number of processes or an address that cannot be.
        ClusterError: The cluster does not answer, is of other versions, or lost an item too often;
            or a process of this machine ended.

    >>> list(spread(abs, [-2, 3]))
    [2, 3]
    """
    if processes < 1 or (seed is not None and seed < 0):
        message = f"processes is {processes!r}, seed is {seed!r}"
        raise InputError(f"{message}; allowed is 1 or more, and 0 or more")
    if address is not None and not _ADDRESS.fullmatch(address):
        raise InputError(f"address is {address!r}; allowed are auto and HOST:PORT of a cluster")
    if address is not None and _installed():
        return _on_cluster(function, items, seed, address)
    return _here(function, items, seed, processes)


def _called(function: Callable[..., Any], item: Any, seed: int | None, place: int) -> Any:
    if seed is None:
        return function(item)
    return function(item, np.random.default_rng([seed, place]))


# -- here -----------------------------------------------------------------------------------------

_kept: list[Callable[..., Any]] = []
"""The function of a process of the pool: it travels once, and not with every item."""


def _here(
    function: Callable[..., R], items: Sequence[T], seed: int | None, processes: int
) -> Iterator[R]:
    if processes == 1:
        for place, item in enumerate(items):
            yield _called(function, item, seed, place)
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _keep, (function,))
    try:
        called = partial(_called_kept, seed)
        waiting = [pool.submit(called, numbered) for numbered in enumerate(items)]
        for place, one in enumerate(waiting):
            yield _result(one, place)
    finally:
        # What nobody waits for shall not go on; Python has a method for it from 3.14 on.
        for process in list((pool._processes or {}).values()):  # noqa: SLF001
            process.terminate()
        pool.shutdown(wait=False)


def _result(waited: Future[R], place: int) -> R:
    try:
        return waited.result()
    except BrokenProcessPool as error:
        message = f"a worker process ended before item {place} was done: {error}; give "
        message += "it more memory, or use fewer processes, and call this under `if __name__ "
        raise ClusterError(
            message + "== '__main__':`, because worker processes import the program"
        ) from error


def _keep(function: Callable[..., Any]) -> None:
    _kept.append(function)


def _called_kept(seed: int | None, numbered: tuple[int, Any]) -> Any:
    place, item = numbered
    return _called(_kept[0], item, seed, place)


# -- on a cluster ---------------------------------------------------------------------------------


def _installed() -> bool:
    try:
        import ray.exceptions  # noqa: F401, PLC0415 (an extra, and slow)
    except ImportError:
        _log.warning(
            "Ray is not installed; working on this machine only, with the "
            "same results; install it with: %s",
            how_to_install("ray"),
        )
        return False
    return True


@contextmanager
def cluster(address: str) -> Iterator[Any]:
    """Be connected to a cluster meanwhile; a connection that was there before stays as it is.

    Ray tells of lost nodes on the standard output, which cannot be changed: a command whose result
    goes there redirects it meanwhile.

    Args:
        address: As `spread` takes it.

    Returns:
        The module `ray`.

    Raises:
        ClusterError: No cluster answers there, or one of other versions of Python or Ray.
    """
    import ray  # noqa: PLC0415 (an extra, and slow)

    if ray.is_initialized():
        yield ray
        return
    try:
        _knock(address)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        message = f"cannot use a Ray cluster at {address!r}: {error}; start one with `ray start "
        message += "--head`, or omit --ray to work on this machine only"
        raise ClusterError(message) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Ray itself takes minutes to say that nobody is there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port != "auto":
        socket.create_connection((host, int(port)), _ANSWERS_S).close()


def _on_cluster(
    function: Callable[..., R], items: Sequence[T], seed: int | None, address: str
) -> Iterator[R]:
    with cluster(address) as ray:
        called = ray.remote(num_cpus=1, max_retries=_RETRIES)(_called)
        shared = ray.put(function)
        # None is cancelled when nobody wants the rest: a driver of Ray 2.60 ends in the middle of
        # it if the task finishes meanwhile. What was not begun ends with the connection.
        waiting = [called.remote(shared, item, seed, place) for place, item in enumerate(items)]
        for place, one in enumerate(waiting):
            yield _gotten(ray, one, place)


def _gotten(ray: Any, reference: Any, place: int) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        # As it would be raised here; where it was raised there is told beside it.
        raise error.cause from error
    except ray.exceptions.RayError as error:
        message = f"the cluster failed item {place}: {type(error).__name__}: {error}; check that"
        message += " its nodes have free memory and stay up (`ray status`); an item is tried "
        raise ClusterError(f"{message}{_RETRIES + 1} times") from error
