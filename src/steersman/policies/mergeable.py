"""States, deltas and merges of policies with additive sums."""

from __future__ import annotations

import hashlib
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from steersman.errors import InputError, MergeError, StateError, SteersmanError
from steersman.errors.format import brief
from steersman.policies import inputs, states

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.policies.states import State, Sums

    Floats = NDArray[np.float64]

_MOST_KEPT = 1024  # last own deltas that a policy remembers
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


_MOST_PLAYS = 2.0**53  # counting by ones goes no further


class Mergeable(ABC):
    """Base class of policies whose sums can be stored, sent as deltas and merged.

    Args:
        actions: K different names, already validated.
        floor: total probability in [0, 1), already validated.
    """

    algorithm: ClassVar[str]
    version: ClassVar[int] = 1

    def __init__(self, actions: tuple[str, ...], floor: float) -> None:
        self.actions = actions
        self.floor = floor
        self.updates = 0
        self._plays: Floats = np.zeros(len(self.actions))
        self._reserved: dict[str, tuple[float, float]] = {}
        self._removals = 0
        self._merged: set[str] = set()
        self._emitted: dict[str, str] = {}  # in their order, with what was learned at their time
        self._base: State | None = None

    def __repr__(self) -> str:
        """Return the class with its parameters, each cut to 80 characters."""
        config = {"actions": list(self.actions), "floor": self.floor, **self._config()}
        return f"{type(self).__name__}({', '.join(f'{k}={brief(v)}' for k, v in config.items())})"

    def __copy__(self) -> Self:
        """Return a deep copy."""
        return deepcopy(self)

    def state(self) -> State:
        """Return the learned state: float64 sums and ``"meta"``, a uint8 array of JSON."""
        return states.pack(self._meta(), self._all_sums())

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the policy of a state.

        Args:
            state: result of :meth:`state` of any copy.

        Raises:
            StateError: another algorithm, version or shape, damaged JSON, non-finite sums, or a
                delta (merge it instead).
        """
        meta, sums = states.unpack(state, algorithm=cls.algorithm, version=cls.version)
        refuse_delta(meta)
        cls._check_size(meta["config"], sums)
        try:
            policy = cls(**meta["config"])
        except (TypeError, ValueError, SteersmanError) as error:
            raise StateError(f"the state's config does not fit {cls.__name__}: {error}") from error
        policy._install(meta, sums)
        policy._base = policy.state()
        return policy

    @classmethod
    def _check_size(cls, config: dict[str, Any], sums: Sums) -> None:
        """Refuse a header whose sizes do not match the arrays, before allocating memory."""
        if sums.get("plays", np.zeros(0)).shape != (len(config["actions"]),):
            raise StateError("the state has no 'plays' with one number per action")

    def delta(self, since: Mapping[str, Any] | None = None, *, id: str | None = None) -> State:  # noqa: A002
        """Return the updates since a state as a delta, to merge into another copy.

        States list their last 1,024 deltas, so that a reload cannot cause a double merge.

        Trap: a state of another copy is refused only if it has deltas that this policy lacks, or a
        later time. Its own updates look like withdrawn updates, and the delta then subtracts them.

        Args:
            since: an earlier state of this policy. Default: the state that it was loaded from, or
                no updates.
            id: unique name of the delta, 1 to 200 characters. Default: a random name.

        Raises:
            InputError: invalid id.
            StateError: ``since`` is a delta, has deltas that this policy lacks, or the header would
                exceed 64 MiB.
        """
        id = checked_id(id)  # noqa: A001 (the argument's name)
        meta, sums = self._meta(), self._all_sums()
        now = self._fingerprint(meta, sums)
        base = self._base if since is None else since
        base_meta = at = None
        if base is not None:
            base_meta, base_sums = self._unpacked(base)
            refuse_delta(base_meta)
            refuse_other_copy(base_meta, merged=self._merged, emitted=self._emitted)
            at = self._fingerprint(base_meta, base_sums) if self._emitted else None
            sums = self._difference(meta, sums, base_meta, base_sums)
            meta["updates"] -= base_meta["updates"]
        header = delta_header(id, merged=self._merged, emitted=self._emitted, base=base_meta, at=at)
        meta.pop("emitted", None)
        holds = meta["updates"] != 0 or any(array.any() for array in sums.values())
        packed = states.pack({**meta, **header}, sums)
        remember(self._emitted, header["delta"], now if holds else "")  # now that nothing can fail
        return packed

    def _fingerprint(self, meta: dict[str, Any], sums: Sums) -> str:
        return fingerprint(meta, sums, {"updates", *self._counters()})

    def merge(self, deltas: Sequence[Mapping[str, Any]]) -> None:
        """Merge deltas of other copies, in any order and grouping; all or none.

        A delta that was already merged is refused, also as part of another delta: a delta lists the
        deltas that it contains.

        Args:
            deltas: results of :meth:`delta`.

        Raises:
            MergeError: a delta was already merged, is a duplicate, was made by this policy, or does
                not fit.
        """
        if isinstance(deltas, Mapping):
            raise MergeError("merge takes a list of deltas; got one delta; pass [delta]")
        if not isinstance(deltas, Iterable):
            raise MergeError(f"merge takes a list of deltas; got {brief(deltas)}")
        unpacked = []
        seen = set(self._merged)
        for delta in deltas:
            try:
                meta, sums = self._unpacked(delta)
                names = delta_ids(meta)
            except MergeError:
                raise
            except StateError as error:
                raise MergeError(f"this delta does not fit the policy: {error}") from error
            refuse_known(names, seen | set(self._emitted))
            seen |= names
            unpacked.append((meta, sums))
        meta, sums = self._meta(), self._all_sums()
        for other_meta, other in unpacked:
            meta, sums = self._sum(meta, sums, other_meta, other)
            meta["updates"] += other_meta["updates"]
        if not all(np.isfinite(array).all() for array in sums.values()):
            raise MergeError("the merged sums would leave the float64 range; nothing was changed")
        try:
            self._install({**meta, "merged": sorted(seen)}, sums)
        except StateError as error:
            raise MergeError(f"cannot add the deltas, nothing changed: {error}") from error

    def _unpacked(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], Sums]:
        """Return header and sums of a state that must fit this policy."""
        meta, sums = states.unpack(state, algorithm=self.algorithm, version=self.version)
        if meta["config"] != self._meta()["config"]:
            raise StateError(
                f"the state was made with {meta['config']}, this policy with "
                f"{self._meta()['config']}; use one configuration for all copies"
            )
        (states.difference if "delta" in meta else states.whole)(meta, "updates")
        if states.whole(meta, "removals") != self._removals:
            raise StateError(
                "an action was removed in one copy but not in the other. Merge all copies "
                "first, then remove the action in each."
            )
        states.check_shapes(sums, self._shapes(meta))
        return meta, sums

    def _meta(self) -> dict[str, Any]:
        # Only if not empty, so that learning a log gives the same bytes as its replay.
        emitted = {"emitted": [list(pair) for pair in self._emitted.items()]}
        return {
            "algorithm": self.algorithm,
            "version": self.version,
            "config": {"actions": list(self.actions), "floor": self.floor, **self._config()},
            "updates": self.updates,
            "removals": self._removals,
            "reserved": {name: list(pair) for name, pair in sorted(self._reserved.items())},
            "merged": sorted(self._merged),
            **self._counters(),
            **(emitted if self._emitted else {}),
        }

    def _all_sums(self) -> Sums:
        return {"plays": self._plays.copy(), **self._sums()}

    def _install(self, meta: dict[str, Any], sums: Sums) -> None:
        states.check_shapes(sums, self._shapes(meta))
        counters = states.whole(meta, "updates"), states.whole(meta, "removals")
        reserved, merged = states.reservations(meta), states.texts(meta, "merged")
        emitted = states.emitted(meta)
        if (sums["plays"] < 0.0).any():
            raise StateError("the state has negative counts; use an older state")
        if (most := sums["plays"].max(initial=0.0)) > _MOST_PLAYS:
            raise StateError(
                f"the state's 'plays' has {most:g}; allowed: at most 2^53; use an older state"
            )
        self._load(meta, sums)
        self._plays = np.array(sums["plays"], order="C")
        self.updates, self._removals = counters
        self._reserved, self._merged, self._emitted = reserved, merged, emitted

    def _shapes(self, meta: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        return {"plays": (len(self.actions),), **self._sum_shapes(meta)}

    def _difference(
        self, meta: dict[str, Any], sums: Sums, base_meta: dict[str, Any], base: Sums
    ) -> Sums:
        """Return ``sums`` less ``base``; policies with a clock or keys align them first."""
        return {name: array - base[name] for name, array in sums.items()}

    def _sum(
        self, meta: dict[str, Any], sums: Sums, other_meta: dict[str, Any], other: Sums
    ) -> tuple[dict[str, Any], Sums]:
        """Return header and arrays of the sum of two states."""
        return meta, {name: array + other[name] for name, array in sums.items()}

    def _counters(self) -> dict[str, Any]:
        """Return further header entries, such as a clock or keys."""
        return {}

    @abstractmethod
    def _config(self) -> dict[str, Any]:
        """Return the constructor's arguments besides actions and floor, as JSON values."""

    @abstractmethod
    def _sums(self) -> Sums:
        """Return copies of the arrays that were summed."""

    @abstractmethod
    def _sum_shapes(self, meta: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return the shapes that ``_sums`` has, given a header."""

    @abstractmethod
    def _load(self, meta: dict[str, Any], sums: Sums) -> None:
        """Replace what was learned; the shapes are checked already."""

    @abstractmethod
    def _action_axes(self) -> dict[str, int]:
        """Return, for every array that has one, the axis along which actions lie."""
