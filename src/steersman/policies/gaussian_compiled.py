"""The integrals of ``gaussian_choice`` in C, where they were compiled when the package was built.

numpy knows no normal distribution function, and SciPy's takes one number after the other; the
compiler makes eight at once of ``gaussian_choice.c``, four to seven times as fast. Without a
compiler numpy does the same integrals.
"""

from __future__ import annotations

import ctypes
from threading import local
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LIBRARY = __file__.removesuffix("gaussian_compiled.py") + "_gaussian_choice.so"
_DONE, _LEFT_TO_NUMPY = 0, 1  # as in gaussian_choice.c
_ROOM, _LANES = 6, 8
_KEPT = 1 << 15  # numbers, at most, of a thread's memory that is kept: enough for 3,000 arms


class _Memory(local):
    """One piece of memory for each thread: to make one and find its address takes a microsecond."""

    def __init__(self) -> None:
        self.numbers: Floats = np.empty(0)
        self.at = 0

    def of(self, size: int) -> tuple[Floats, int]:
        """Return ``size`` numbers or more, which hold anything, and where they are."""
        if size <= len(self.numbers):
            return self.numbers, self.at
        numbers: Floats = np.empty(size)
        if size <= _KEPT:
            self.numbers, self.at = numbers, numbers.ctypes.data
            return numbers, self.at
        return numbers, numbers.ctypes.data


_memory = _Memory()


def _load() -> Callable[..., int] | None:
    """Return the compiled function, or None where it was not built."""
    try:
        library = ctypes.PyDLL(LIBRARY)  # keeps the interpreter's lock: it takes microseconds
        function = library.steersman_gaussian_choice
    except (OSError, AttributeError):  # not there, for another kind of machine, or of other source
        return None
    function.argtypes = [ctypes.c_long] + [ctypes.c_void_p] * 4
    function.restype = ctypes.c_int
    return function


_choose = _load()


def is_compiled() -> bool:
    """Return whether the integrals are those in C."""
    return _choose is not None


def choose_compiled(means: Floats, sds: Floats) -> tuple[Floats, bool] | None:
    """Return the probability of each arm to have the largest score.

    Args:
        means: (K,) float64, finite.
        sds: (K,) float64 >= 0, finite.

    Returns:
        (K,) probabilities and True; or ones for the arms, three at most, that can be best, and
        False; or None, where numpy has to do it.
    """
    if _choose is None:
        return None
    count = len(means)
    # Means, spreads, answer and room in one piece, as each address costs half a microsecond.
    memory, at = _memory.of(3 * count + _ROOM * (count + _LANES))
    memory[:count] = means
    memory[count : 2 * count] = sds
    size = 8 * count
    found = _choose(count, at, at + size, at + 2 * size, at + 3 * size)
    if found == _LEFT_TO_NUMPY:
        return None
    return memory[2 * count : 3 * count].copy(), found == _DONE
