"""States, deltas and merges of policies with additive sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from steersman.errors import MergeError, StateError, SteersmanError
from steersman.errors.format import brief
from steersman.policies import states
from steersman.policies.deltas import (
    checked_id,
    delta_header,
    delta_ids,
    fingerprint,
    refuse_delta,
    refuse_known,
    refuse_other_copy,
    remember,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.policies.states import State, Sums

    Floats = NDArray[np.float64]

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
        # Only where there are any: whoever learns a log has the bytes that the log gives.
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
