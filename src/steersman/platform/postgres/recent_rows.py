"""Newest rows of a log within a memory limit."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES = 256 << 20
_PAGE = 100
_NAME = 100  # approximate bytes of a name in a list


async def newest_rows(
    connection: Any, query: str, *arguments: Any, most_bytes: int = MOST_BYTES
) -> list[tuple[Any, ...]]:
    """Return decision rows within a memory limit, oldest first.

    Args:
        most_bytes: approximate limit for features and steps in bytes; the newest row is
            always included.

    Returns:
        The columns of each row; features as float32.
    """
    found: list[tuple[Any, ...]] = []
    held = 0
    async for row in connection.cursor(query, *arguments, prefetch=_PAGE):
        held += _size(row)
        if found and held > most_bytes:
            break
        found.append(tuple(_small(name, value) for name, value in row.items()))
    found.reverse()
    return found


def _small(name: str, value: Any) -> Any:
    return array("f", value) if name == "features" and value is not None else value


def _size(row: Mapping[str, Any]) -> int:
    features, steps = row.get("features"), row.get("steps")
    return 4 * len(features or ()) + _NAME * sum(len(one["eligible"]) for one in steps or ())
