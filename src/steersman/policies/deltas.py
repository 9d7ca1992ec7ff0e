"""What a delta says of itself, so that nothing is ever merged twice."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError, MergeError, StateError
from steersman.errors.showing import brief
from steersman.policies import inputs, states

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.policies.states import Sums

_MOST_KEPT = 1024  # deltas of its own that a policy remembers, the last ones
_LONGEST_ID = 200


def delta_header(
    name: str | None,
    *,
    merged: set[str],
    emitted: Mapping[str, str],
    base: Mapping[str, Any] | None,
    at: str | None,
) -> dict[str, Any]:
    """Return the header entries that make a state a delta.

    ``includes`` lists what the delta brings along: the deltas that its maker merged since the base,
    and its maker's own earlier ones that reach beyond it. A state names the deltas that were made
    before it, and so holds them. Of the others it holds one only if nothing changed in between.
    Numbers of updates cannot tell: a revision leaves them, and a withdrawal takes them back.

    Args:
        name: a name that no other delta has; None: a random one.
        merged: ids that the maker has merged.
        emitted: the maker's own earlier deltas, each with the fingerprint of what it had learned
            then; no text: the delta holds nothing.
        base: header of the state that the delta is since; None: since nothing was learned.
        at: fingerprint of that state; None: of nothing learned.
    """
    known: set[str] = set()
    if base is not None:
        known = {*states.texts(base, "merged"), *states.emitted(base)}
    earlier = {id_ for id_, then in emitted.items() if then and then != at} - known
    return {
        "delta": uuid.uuid4().hex if name is None else name,
        "includes": sorted((merged - known) | earlier),
        "merged": [],
    }


def refuse_other_copy(
    base: Mapping[str, Any], *, merged: set[str], emitted: Mapping[str, str]
) -> None:
    """Raise StateError if a state holds deltas that a policy lacks, so is not what it came from.

    Args:
        base: header of the state.
        merged: ids that the policy has merged.
        emitted: its own deltas; once it has forgotten some of them, nothing can be told.
    """
    if len(emitted) >= _MOST_KEPT:
        return
    made = {id_ for id_, learned in states.emitted(base).items() if learned}
    lacking = {*states.texts(base, "merged"), *made} - merged - set(emitted)
    if lacking:
        raise StateError(
            f"the state holds the delta {brief(min(lacking))}, which is not in this policy; "
            "pass an earlier state of this policy"
        )


def fingerprint(meta: Mapping[str, Any], sums: Sums, counters: Iterable[str]) -> str:
    """Return 16 hexadecimal digits that tell what was learned from all else.

    Args:
        meta: header of a state.
        sums: its arrays.
        counters: header entries that belong to what was learned, such as a clock.
    """
    own = {name: meta.get(name) for name in counters}
    found = hashlib.blake2b(json.dumps(own, sort_keys=True).encode(), digest_size=8)
    for name in sorted(sums):
        found.update(name.encode())
        found.update(np.ascontiguousarray(sums[name]).data)
    return found.hexdigest()


def remember(emitted: dict[str, str], name: str, learned: str) -> None:
    """Add a delta to a policy's own ones; beyond 1,024 the oldest are forgotten.

    Args:
        emitted: changed in place.
        name: id of the delta.
        learned: fingerprint of its maker's state; no text: the delta holds nothing.
    """
    emitted.pop(name, None)
    emitted[name] = learned
    while len(emitted) > _MOST_KEPT:
        del emitted[next(iter(emitted))]


def delta_ids(meta: Mapping[str, Any]) -> set[str]:
    """Return the id of a delta and of all that it brings along.

    Raises:
        MergeError: it is a state and no delta, or has an id that no state could name.
    """
    name = meta.get("delta")
    if not isinstance(name, str):
        raise MergeError("this is a state, not a delta; pass the result of delta()")
    if not inputs.is_text(name):
        raise MergeError(
            f"the delta's id is {brief(name)}; allowed: non-empty Unicode text. Create the "
            "delta again with another delta(id=...)"
        )
    return {name, *states.texts(meta, "includes")}


def refuse_known(names: set[str], known: set[str]) -> None:
    """Raise MergeError if any of a delta's ids is known already."""
    twice = names & known
    if twice:
        raise MergeError(
            f"delta {min(twice)!r} was already merged, or was made by this policy; nothing was "
            "changed. Create it again with delta(since=...) from a state that both policies "
            "share."
        )


def checked_id(name: str | None) -> str | None:
    """Return the id for a delta; None: it gets a random one.

    Raises:
        InputError: no text of 1 to 200 characters that UTF-8 can write.

    >>> checked_id("worker-3")
    'worker-3'
    """
    if name is None or (inputs.is_text(name) and len(name) <= _LONGEST_ID):
        return name
    raise InputError(
        f"a delta's id must be text of 1 to {_LONGEST_ID} characters; got {brief(name)}. Omit "
        "it for a random id"
    )


def refuse_delta(meta: Mapping[str, Any]) -> None:
    """Raise StateError if a header is a delta's, where a state is wanted.

    A policy made of a delta would not know that it holds it, and merge it once more.
    """
    if "delta" in meta:
        raise StateError(
            f"this is the delta {brief(meta['delta'])}, not a state; pass the result of "
            "state(). Merge a delta into a copy of the policy that it was made from."
        )
