"""Input files of ``steersman tune``: recordings, policy files and parts of configurations."""

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

    from steersman_systems.rag_tuner.logged import World
    from steersman_systems.rag_tuner.policy_config import PolicyConfig

    T = TypeVar("T")


def check_writable(file: Path) -> None:
    """Refuse a file that cannot be written, before the work starts.

    Raises:
        DataError: the file is a folder, or its folder is not writable.
    """
    above = next(one for one in file.absolute().parents if one.exists())
    if file.is_dir() or not above.is_dir() or not os.access(above, os.W_OK):
        raise DataError(f"cannot write {file}; choose another file with --out")


def opened(file: Path) -> World:
    """Return the recording or log in a file of `steersman tune record`.

    Raises:
        DataError: the file does not exist, or is damaged.
    """
    from steersman_systems.rag_tuner.logged import load_world  # noqa: PLC0415 (slow)

    return load_world(file)


def policy_of(file: Path | None) -> PolicyConfig:
    """Return the policy configuration in a file; None: the shipped one.

    Raises:
        SpecError: the file is invalid.
    """
    from steersman_systems.rag_tuner.policy_config import load_policy_config  # noqa: PLC0415 (slow)

    return load_policy_config(file)


def parts_of(text: str) -> Any:
    """Return the configuration in a text such as ``variant=hybrid,k=8,rerank=on``.

    Raises:
        DataError: a part has no value, or an invalid one.
    """
    from steersman_systems.rag_tuner.configuration import Configuration  # noqa: PLC0415 (slow)

    return Configuration.of(read_parts(text))


def read_parts(text: str) -> dict[str, Any]:
    """Return the parts in a text such as ``variant=hybrid,k=8,rerank=on``.

    Raises:
        DataError: a part has no value, or a value of the wrong type.

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
            message = (
                f"invalid part {one.strip()!r}: expected parts such as variant=rrf,k=10,rerank=off"
            )
            raise DataError(message) from None
    return parts


def _switch(value: str) -> bool:
    return {"on": True, "off": False}[value]


def shown(rows: Iterable[T], total: int, what: str, *, as_json: bool) -> Iterable[T]:
    """Return rows with a progress bar for people at a terminal."""
    if as_json or not sys.stderr.isatty():
        return rows
    return track(rows, total=total, description=what, console=Console(stderr=True))
