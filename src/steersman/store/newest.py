"""The newest rows of a log, as many as memory is meant to hold: a selection's may be large."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES = 256 << 20
_PAGE = 100
_NAME = 100  # bytes of a name in a list, about


async def newest_rows(
    connection: Any, query: str, *arguments: Any, most_bytes: int = MOST_BYTES
) -> list[tuple[Any, ...]]:
    """Return rows of decisions, oldest first, without all that would take too much memory.

    Args:
        connection: within a transaction of the tenant.
        query: of rows, the newest first; ``features`` and ``steps`` may be among the columns.
        arguments: of the query.
        most_bytes: of features and steps together, about; the newest row comes in any case.

    Returns:
        The columns of each row; features in four bytes each.
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
