"""Benchmarks: each is a command, ``python -m benchmarks.NAME``, run in a separate process.

Importing this package sets BLAS and OpenMP to one thread, unless the environment already sets a
number. So it must be imported before numpy; ``python -m`` does so.
"""

import os
import sys

from benchmarks.extras import show_advice

# BLAS libraries read these once, when they are loaded: later changes have no effect.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

for _variable in THREAD_VARIABLES:
    os.environ.setdefault(_variable, "1")

if sys.argv[0] == "-m":  # the package of a command that is about to run
    sys.excepthook = show_advice

__all__ = ["THREAD_VARIABLES"]
