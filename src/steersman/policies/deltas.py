"""What a delta says of itself, so that nothing is ever merged twice."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from steersman.errors import MergeError
from steersman.policies import states

if TYPE_CHECKING:
    from collections.abc import Mapping


def delta_header(
    name: str | None,
    *,
    merged: set[str],
    emitted: Mapping[str, int],
    base: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the header entries that make a state a delta.

    ``includes`` lists what the delta brings along: the deltas that its maker merged since the base,
    and its maker's own earlier ones that reach back before it.

    Args:
        name: a name that no other delta has; None: a random one.
        merged: ids that the maker has merged.
        emitted: the maker's own earlier deltas and its number of updates at their time.
        base: header of the state that the delta is since; None: since nothing was learned.
    """
    known = set() if base is None else states.texts(base, "merged")
    start = 0 if base is None else states.whole(base, "updates")
    earlier = {id_ for id_, updates in emitted.items() if updates > start}
    return {
        "delta": name or uuid.uuid4().hex,
        "includes": sorted((merged - known) | earlier),
        "merged": [],
    }


def delta_ids(meta: Mapping[str, Any]) -> set[str]:
    """Return the id of a delta and of all that it brings along.

    Raises:
        MergeError: it is a state and no delta.
    """
    name = meta.get("delta")
    if not isinstance(name, str):
        raise MergeError("this is a state, not a delta; pass what delta() returned")
    return {name, *states.texts(meta, "includes")}


def refuse_known(names: set[str], known: set[str]) -> None:
    """Raise MergeError if any of a delta's ids is known already."""
    twice = names & known
    if twice:
        raise MergeError(
            f"delta {min(twice)!r} was merged before, or is this policy's own; nothing was "
            "changed. Ask its maker for delta(since=...) a state that both share."
        )
