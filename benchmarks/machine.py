"""Description of the machine, so that every figure is quoted with it."""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import scipy

from benchmarks import THREAD_VARIABLES
from steersman.policies.gaussian_compiled import is_compiled

__all__ = ["CoreTime", "describe_machine", "measure_bandwidth"]


def describe_machine() -> dict[str, str | int | float]:
    """Return the facts about this machine and its libraries that affect the figures.

    Returns:
        Cores usable by this process, CPU model, memory in GiB (0.0 when unknown), operating
        system, versions of Python, numpy and scipy, the BLAS numpy was built with, whether
        the package's own C was compiled, and the number of threads of BLAS.

    Example:
        >>> sorted(describe_machine())[:4]
        ['blas', 'compiled', 'cores', 'cpu']
    """
    return {
        "cores": _usable_cores(),
        "cpu": _cpu_model(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas": _blas(),
        "compiled": "yes" if is_compiled() else "no",
        "threads": ",".join(sorted({os.environ.get(name, "unset") for name in THREAD_VARIABLES})),
    }


class CoreTime:
    """Share of the time since creation in which this machine's cores were available.

    A virtual machine's cores pause while the host does other work, for other guests or for new
    memory pages. The guest then misses clock ticks, reported as stolen or not. If the share is
    below .9, the figures depend on the host too.

    Example:
        >>> cores = CoreTime()
        >>> work = sum(range(1_000_000))
        >>> share = cores.share()
    """

    def __init__(self) -> None:
        self._begun = time.monotonic(), _accounted_seconds()

    def share(self) -> float | None:
        """Return the share, 0 to 1 up to the clock's resolution; None without Linux's counters."""
        (began, before), now = self._begun, _accounted_seconds()
        elapsed = (time.monotonic() - began) * (os.cpu_count() or 1)
        return None if before is None or now is None else round((now - before) / elapsed, 2)


def _accounted_seconds() -> float | None:
    """Return the busy and idle seconds of all cores since boot, without stolen time."""
    file = Path("/proc/stat")
    if not file.is_file():
        return None
    ticks = [int(value) for value in file.read_text(encoding="ascii").split("\n")[0].split()[1:8]]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def measure_bandwidth(working_set: int = 256 * 2**20, *, repeats: int = 15) -> float:
    """Return the rate at which one thread streams float32 numbers through a matrix-vector product.

    A matrix-vector product reads every entry once for two operations, so memory (or the cache, if
    the working set fits) limits its speed. A decision of a linear policy is such a product: its
    time over ``bytes moved / bandwidth`` is its distance from the machine's limit.

    Args:
        working_set: Size of the matrix in bytes, at least 4 KiB. Far above the last cache level it
            measures main memory; with the size of a policy's state, that policy's limit.
        repeats: Number of timed passes, at least 1; the median counts.

    Returns:
        Bytes per second, greater than 0.

    Raises:
        ValueError: `working_set` is below 4 KiB or `repeats` below 1.

    Example:
        >>> measure_bandwidth(2**20, repeats=3) > 1e6
        True
    """
    if working_set < 4096 or repeats < 1:
        message = (
            f"working_set is {working_set} bytes and repeats {repeats}; "
            "at least 4096 bytes and 1 repeat are needed to time anything"
        )
        raise ValueError(message)
    columns = 1024
    matrix = np.ones((working_set // (4 * columns), columns), dtype=np.float32)
    vector = np.ones(columns, dtype=np.float32)
    out = np.empty(matrix.shape[0], dtype=np.float32)
    # Several passes over a small matrix per reading, because of the clock's resolution.
    passes = max(1, round(16 * 2**20 / matrix.nbytes))
    np.dot(matrix, vector, out=out)
    seconds = [_time_passes(matrix, vector, out, passes) for _ in range(repeats)]
    return passes * matrix.nbytes / statistics.median(seconds)


def _time_passes(matrix: np.ndarray, vector: np.ndarray, out: np.ndarray, passes: int) -> float:
    started = time.perf_counter()
    for _ in range(passes):
        np.dot(matrix, vector, out=out)
    return time.perf_counter() - started


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return 0.0
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _blas() -> str:
    configuration = np.show_config(mode="dicts")
    blas = configuration["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']}"
