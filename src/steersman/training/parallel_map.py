"""Parallel map over items: locally, in processes or on a Ray cluster, with equal results."""

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
from steersman.errors.install_hint import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    T = TypeVar("T")
    R = TypeVar("R")

_log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"auto|(ray://)?[^/]+:\d{1,5}")
_ANSWERS_S = 5.0
_RETRIES = 5
"""Number of times an item may lose its node, because an item can kill every worker."""


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
    """Return the results of a function for each item, in order.

    Results do not depend on the node: each item has a random generator from the seed and its index.
    They are identical on the same kind of processor and agree to about 1e-9 on others. If a node
    dies, its items run again elsewhere, so the function must not have side effects.

    Args:
        address: Ray cluster: ``auto`` on one of its nodes, or ``HOST:PORT`` of its head. None runs
            locally. Without the package `ray` it logs a warning and runs locally.
        seed: random seed, ≥ 0; None: no generator.
        processes: local processes without a cluster, ≥ 1.

    Raises:
        InputError: a seed, number of processes or address is invalid.
        ClusterError: the cluster does not respond, has other versions or failed an item too often;
            or a local process ended.

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


# -- local ----------------------------------------------------------------------------------------

_kept: list[Callable[..., Any]] = []
"""Function of a pool process, sent once and not with every item."""


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
        # Stop unneeded work; Python 3.14 has a method for this.
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
    """Connect to a cluster in this context; keep an existing connection.

    Ray always reports lost nodes on standard output. A command that prints its result there must
    redirect the output of Ray.

    Raises:
        ClusterError: no cluster responds, or it has other versions of Python or Ray.
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
    """Check the port first, because Ray takes minutes to report a missing cluster."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port != "auto":
        socket.create_connection((host, int(port)), _ANSWERS_S).close()


def _on_cluster(
    function: Callable[..., R], items: Sequence[T], seed: int | None, address: str
) -> Iterator[R]:
    with cluster(address) as ray:
        called = ray.remote(num_cpus=1, max_retries=_RETRIES)(_called)
        shared = ray.put(function)
        # Tasks are not cancelled: a driver of Ray 2.60 crashes
        # if a task finishes meanwhile. Pending tasks end with the connection.
        waiting = [called.remote(shared, item, seed, place) for place, item in enumerate(items)]
        for place, one in enumerate(waiting):
            yield _gotten(ray, one, place)


def _gotten(ray: Any, reference: Any, place: int) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        # Raise the original error; the remote traceback is its cause.
        raise error.cause from error
    except ray.exceptions.RayError as error:
        message = f"the cluster failed item {place}: {type(error).__name__}: {error}; check that"
        message += " its nodes have free memory and stay up (`ray status`); an item is tried "
        raise ClusterError(f"{message}{_RETRIES + 1} times") from error
