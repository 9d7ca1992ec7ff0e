"""Steersman learns the choices inside LLM and RAG applications, and ships what it learns safely.

The names below are imported when they are first used, so that ``import steersman`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman.client import AsyncClient, Client
    from steersman.ope import LoggedData, evaluate
    from steersman.policies import BetaThompson, LinTS, LinUCB

__all__ = [
    "AsyncClient",
    "BetaThompson",
    "Client",
    "LinTS",
    "LinUCB",
    "LoggedData",
    "evaluate",
]

__version__ = "0.1.0"

_PLACES = {
    "AsyncClient": "steersman.client",
    "BetaThompson": "steersman.policies",
    "Client": "steersman.client",
    "LinTS": "steersman.policies",
    "LinUCB": "steersman.policies",
    "LoggedData": "steersman.ope",
    "evaluate": "steersman.ope",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Kept, so that the next use finds it without this function.
    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
