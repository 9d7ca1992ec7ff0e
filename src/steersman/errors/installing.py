"""How an extra is installed where this package came from: what messages say is to be typed."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

__all__ = ["how_to_install"]


def how_to_install(*extras: str) -> str:
    """Return the command that installs extras, and where it is given if that matters.

    A package that came from a checkout is on no index that pip would ask: it is installed from
    there again. The checkout's path is not named, since answers of a service may hold the text.

    Args:
        extras: their names, such as ``rag``; at least one.

    Returns:
        Text that follows a colon.

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
