"""Optional libraries: imported on use, with an install hint."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install


def extra(module: str, name: str) -> Any:
    """Return a module of an optional library.

    Raises:
        DataError: it is not installed.

    >>> extra("no_such_library.part", "data")
    Traceback (most recent call last):
    steersman.errors.DataError: this needs no_such_library; install it with: pip install ...
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        message = f"this needs {library}; install it with: {how_to_install(name)}"
        raise DataError(message) from error
