"""Decisions of kind sequence, read back from their rows: what was offered, and what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.policies import Offered


def offered_of(
    eligible: Sequence[str] | None,
    links: Mapping[str, Sequence[str]] | None,
    features: Sequence[float] | None,
) -> Offered:
    """Return what the request of a stored selection offered.

    Args:
        eligible: the row's: candidates that were there from the start.
        links: the row's.
        features: the row's: of all candidates, one after the other.

    Returns:
        The same to the bit as what was selected from.

    Raises:
        InputError: a row of another kind.

    >>> offered_of(["a"], {"a": ["b"]}, [0.5, 0.25]).rows.tolist()
    [[0.5], [0.25]]
    """
    from steersman.policies import Offered, offered_names  # noqa: PLC0415 (slow)

    if not eligible:
        raise InputError("this row has no candidates; it is not from a sampled selection")
    count = len(offered_names(eligible, links))
    rows = np.asarray(() if features is None else features, np.float64)
    if len(rows) % count:
        raise InputError(f"{len(rows)} numbers cannot be split among {count} candidates")
    return Offered.of(eligible, links, rows.reshape(count, -1))


def done_in(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what was done at each step of a stored selection.

    Args:
        steps: the row's.

    Returns:
        Names of candidates, and ``stop`` where it stopped.

    >>> done_in([{"eligible": ["a", "stop"], "action": "a", "p": 0.5}])
    ['a']
    """
    return [step["action"] for step in steps]
