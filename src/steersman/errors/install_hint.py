"""Install command of an extra, for error messages."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from steersman.errors import DataError

__all__ = ["how_to_install"]


def how_to_install(*extras: str) -> str:
    """Return the command that installs extras, and the directory to run it in.

    A package from a checkout is installed from the checkout again, because no index has it. The
    text omits the path of the checkout, because service answers may contain the text.

    Args:
        extras: names of extras, such as ``rag``; at least one.

    Returns:
        Text to put after a colon.

    Source: PEP 610 (``direct_url.json``), PEP 660 (editable installs).

    >>> how_to_install("rag", "data").endswith("[rag,data]' in the checkout of Steersman")
    True
    """
    return _command().format(",".join(extras))


@cache
def _command() -> str:
    try:
        said = distribution("steersman").read_text("direct_url.json")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        said = '{"dir_info": {}}'
    where = json.loads(said or "{}").get("dir_info")
    if where is None:
        return "pip install 'steersman[{}]'"
    editable = "-e " if where.get("editable") else ""
    return f"pip install {editable}'.[{{}}]' in the checkout of Steersman"


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
