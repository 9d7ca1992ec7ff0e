"""What the commands of ``steersman tune`` read: recordings, policies, parts of configurations."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import TypeVar

    from steersman.systems.rag_tuner import Tuned
    from steersman.systems.rag_tuner.logged import World

    T = TypeVar("T")


def check_writable(file: Path) -> None:
    """Refuse a file that cannot be written, before anything is made for it.

    Args:
        file: That is to be written; its folder is made then.

    Raises:
        DataError: It is a folder, or its folder cannot be written to.
    """
    above = next(one for one in file.absolute().parents if one.exists())
    if file.is_dir() or not above.is_dir() or not os.access(above, os.W_OK):
        raise DataError(f"{file} cannot be written; name another file with --out")


def opened(file: Path) -> World:
    """Return a recording, or a log.

    Args:
        file: Of `steersman tune record`.

    Raises:
        DataError: There is none, or it is damaged.
    """
    from steersman.systems.rag_tuner.logged import load_world  # noqa: PLC0415 (slow)

    return load_world(file)


def policy_of(file: Path | None) -> Tuned:
    """Return a policy configuration.

    Args:
        file: ``None`` for the shipped one.

    Raises:
        SpecError: It is wrong.
    """
    from steersman.systems.rag_tuner import load_policy_config  # noqa: PLC0415 (slow)

    return load_policy_config(file)


def parts_of(text: str) -> Any:
    """Return the configuration of parts as people write them.

    Args:
        text: Such as ``variant=hybrid,k=8,rerank=on``.

    Raises:
        DataError: A part has no value, or one that is none of its own.
    """
    from steersman.systems.rag_tuner import Configuration  # noqa: PLC0415 (slow)

    return Configuration.of(read_parts(text))


def read_parts(text: str) -> dict[str, Any]:
    """Return parts as people write them.

    Args:
        text: Such as ``variant=hybrid,k=8,rerank=on``.

    Raises:
        DataError: A part has no value, or one that is no number or no switch.

    >>> read_parts("k=8,rerank=on")
    {'k': 8, 'rerank': True}
    """
    read: dict[str, Callable[[str], Any]] = {
        "k": int,
        "fusion_weight": float,
        "rerank": _switch,
        "expansion": _switch,
    }
    parts: dict[str, Any] = {}
    for one in text.split(","):
        name, _, value = one.strip().partition("=")
        try:
            parts[name] = read.get(name, str)(value)
        except (ValueError, KeyError):
            message = f"parts have {one.strip()!r}; write parts as variant=rrf,k=10,rerank=off"
            raise DataError(message) from None
    return parts


def _switch(value: str) -> bool:
    return {"on": True, "off": False}[value]


def shown(rows: Iterable[T], total: int, what: str, *, as_json: bool) -> Iterable[T]:
    """Return rows that show how far they are, to people at a terminal.

    Args:
        rows: What is gone through.
        total: How many.
        what: Is done.
        as_json: Show nothing.
    """
    if as_json or not sys.stderr.isatty():
        return rows
    return track(rows, total=total, description=what, console=Console(stderr=True))
