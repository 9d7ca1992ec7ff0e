"""Stored selections: candidates and steps of sequence decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.policies.offered import Offered


def offered_of(
    eligible: Sequence[str] | None,
    links: Mapping[str, Sequence[str]] | None,
    features: Sequence[float] | None,
) -> Offered:
    """Return the candidates of a stored selection.

    Raises:
        InputError: the row is not a selection.

    >>> offered_of(["a"], {"a": ["b"]}, [0.5, 0.25]).rows.tolist()
    [[0.5], [0.25]]
    """
    from steersman.policies.offered import Offered, offered_names  # noqa: PLC0415 (slow)

    if not eligible:
        raise InputError("this row has no candidates; it is not from a sampled selection")
    count = len(offered_names(eligible, links))
    rows = np.asarray(() if features is None else features, np.float64)
    if len(rows) % count:
        raise InputError(f"{len(rows)} numbers cannot be split among {count} candidates")
    return Offered.of(eligible, links, rows.reshape(count, -1))


def done_in(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the actions of a stored selection.

    >>> done_in([{"eligible": ["a", "stop"], "action": "a", "p": 0.5}])
    ['a']
    """
    return [step["action"] for step in steps]
