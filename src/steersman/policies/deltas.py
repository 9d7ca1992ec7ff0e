"""Delta headers and ids, which prevent a double merge."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError, MergeError, StateError
from steersman.errors.format import brief
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
    """Return the header entries of a delta.

    ``includes`` lists the deltas that this delta contains: those merged since the base, and the
    policy's own earlier deltas that are not in the base. A fingerprint shows whether something
    changed since; the number of updates does not, because revisions keep it and withdrawals lower
    it.

    Args:
        name: unique name of the delta. None: a random one.
        merged: ids of merged deltas.
        emitted: own earlier deltas, each with the fingerprint of the state at that time; "": empty.
        base: header of the base state. None: no updates.
        at: fingerprint of the base state. None: no updates.
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
    """Raise StateError if a state holds deltas that the policy does not have."""
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
    """Return 16 hexadecimal digits that identify the learned state.

    `counters` names the header entries that belong to it, such as a clock.
    """
    own = {name: meta.get(name) for name in counters}
    found = hashlib.blake2b(json.dumps(own, sort_keys=True).encode(), digest_size=8)
    for name in sorted(sums):
        found.update(name.encode())
        found.update(np.ascontiguousarray(sums[name]).data)
    return found.hexdigest()


def remember(emitted: dict[str, str], name: str, learned: str) -> None:
    """Add a delta to ``emitted`` in place and keep the last 1,024."""
    emitted.pop(name, None)
    emitted[name] = learned
    while len(emitted) > _MOST_KEPT:
        del emitted[next(iter(emitted))]


def delta_ids(meta: Mapping[str, Any]) -> set[str]:
    """Return the id of a delta and the ids of the deltas that it contains.

    Raises:
        MergeError: not a delta, or an invalid id.
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
    """Return the id for a delta; a random one for None.

    Raises:
        InputError: not a text of 1 to 200 Unicode characters.

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
    """Raise StateError if the header belongs to a delta.

    A policy created from a delta would not know the delta's id, and could merge it again.
    """
    if "delta" in meta:
        raise StateError(
            f"this is the delta {brief(meta['delta'])}, not a state; pass the result of "
            "state(). Merge a delta into a copy of the policy that it was made from."
        )
