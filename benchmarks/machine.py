"""What the benchmarks ran on, so that a figure is never quoted without its machine."""

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
    """Return the facts about this machine and its libraries that move the figures.

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
    """How much of the time since it was made this machine's cores were there for it.

    A virtual machine's cores stand still while the host does something else: for others, or for
    what costs the host more than the guest, such as pages of memory that were never touched. The
    guest's clock ticks go missing then, whether the host calls it stolen or not. Figures of a run
    with less than nine tenths are the host's as much as the program's.

    Example:
        >>> cores = CoreTime()
        >>> work = sum(range(1_000_000))
        >>> share = cores.share()
    """

    def __init__(self) -> None:
        self._begun = time.monotonic(), _accounted_seconds()

    def share(self) -> float | None:
        """Return the share, 0 to 1 but for the grain of the clock; None where Linux has none."""
        (began, before), now = self._begun, _accounted_seconds()
        elapsed = (time.monotonic() - began) * (os.cpu_count() or 1)
        return None if before is None or now is None else round((now - before) / elapsed, 2)


def _accounted_seconds() -> float | None:
    """Return what all cores did or idled since the start, without what the host says it took."""
    file = Path("/proc/stat")
    if not file.is_file():
        return None
    ticks = [int(value) for value in file.read_text(encoding="ascii").split("\n")[0].split()[1:8]]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def measure_bandwidth(working_set: int = 256 * 2**20, *, repeats: int = 15) -> float:
    """Return the rate at which one thread streams float32 numbers through a matrix-vector product.

    A product of a matrix with a vector reads every entry once and does two operations with it, so
    its speed is that of the memory (or of the cache, when the working set fits in one). A decision
    of a linear policy is such a product: its time divided by ``bytes moved / bandwidth`` tells how
    far it is from what the machine allows.

    Args:
        working_set: Bytes of the matrix, at least 4 KiB. Far above the last cache level it measures
            main memory; with the size of a policy's state it measures what that policy can reach.
        repeats: Timed passes, at least 1; the median counts.

    Returns:
        Bytes per second, greater than 0.

    Raises:
        ValueError: A working set under 4 KiB or no repeats.

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
    # A small matrix is passed several times per reading, so that the clock's grain does not count.
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
    if hasattr(os, "sched_getaffinity"):  # Linux alone has it
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
