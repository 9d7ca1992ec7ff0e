"""What every policy for choice actions shares: from scores to a drawn choice, and the state's life.

A subclass says how it scores and what it sums; this class validates, mixes floors, draws, and turns
sums into states, deltas and merges. Sums are additive, so a merge is an addition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from steersman.errors import ActionError, InputError, MergeError, StateError, SteersmanError
from steersman.policies import inputs, states
from steersman.policies.choice import Choice, draw, mix_floor, mix_reserved
from steersman.policies.deltas import delta_header, delta_ids, refuse_known

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.policies.states import State, Sums

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


class ChoicePolicy(ABC):
    """A policy over named actions; subclasses are listed in ``steersman.policies``.

    Args:
        actions: different names, K of them; their order is the order of every (K,) array.
        floor: total mass in [0, 1) spread evenly over the eligible actions.

    Raises:
        InputError: names that repeat or are empty, a floor out of range.

    >>> from steersman.policies import LinUCB
    >>> isinstance(LinUCB(["a", "b"], dim=2), ChoicePolicy)
    True
    """

    algorithm: ClassVar[str]
    version: ClassVar[int] = 1

    def __init__(self, actions: Sequence[str], *, floor: float = 0.0) -> None:
        self.actions = inputs.names(actions)
        self.floor = inputs.floor(floor)
        self.updates = 0
        self._index = {name: i for i, name in enumerate(self.actions)}
        self._plays: Floats = np.zeros(len(self.actions))
        self._reserved: dict[str, tuple[float, float]] = {}
        self._removals = 0
        self._merged: set[str] = set()
        self._emitted: dict[str, int] = {}
        self._base: State | None = None

    # -- deciding: pure --------------------------------------------------------------------------

    def decide(
        self,
        x: Any,
        *,
        rng: np.random.Generator,
        eligible: Sequence[str] | None = None,
        features: Any = None,
    ) -> Choice:
        """Return one action, drawn from :meth:`distribution` with one uniform of ``rng``.

        Args:
            x: the context, as the policy's class documents it.
            rng: the only source of randomness; exactly one ``random()`` is taken from it.
            eligible: names allowed for this request; ``None``: all.
            features: per-action features, for joint models only.

        Raises:
            InputError: the context is malformed.
            ActionError: an unknown name, or nothing eligible (serve the fallback then).
        """
        names, mask, scores, distribution = self._decide(x, eligible, features)
        u = rng.random()
        index = draw(distribution, u)
        if mask is None:
            mask = distribution >= 0.0  # all of them, in less time than np.ones takes
        else:
            scores = np.where(mask, scores, np.nan)
        return Choice(names[index], float(distribution[index]), distribution, scores, mask, u)

    def distribution(
        self, x: Any, *, eligible: Sequence[str] | None = None, features: Any = None
    ) -> Floats:
        """Return the (K,) probabilities that :meth:`decide` draws from, in ``actions`` order.

        Args:
            x: as in :meth:`decide`.
            eligible: likewise.
            features: likewise.
        """
        return self._decide(x, eligible, features)[3]

    def _decide(
        self, x: Any, eligible: Sequence[str] | None, features: Any
    ) -> tuple[tuple[str, ...], Mask | None, Floats, Floats]:
        """Return names, mask, scores and the final distribution, all of one length."""
        mask = self._mask(eligible)
        scores, distribution = self._score(x, mask, features)
        return self.actions, mask, scores, self._mixed(mask, distribution)

    def _mixed(self, mask: Mask | None, distribution: Floats) -> Floats:
        """Return the distribution with the floor and the shares of new actions mixed in."""
        mixed = mix_floor(distribution, mask, self.floor)
        if self._reserved:
            mixed = mix_reserved(mixed, self._reserved_shares(mask))
        return mixed

    def _mask(self, eligible: Sequence[str] | None) -> Mask | None:
        if eligible is None:
            if self.actions:
                return None
            raise ActionError("this policy has no actions; add one, or serve the fallback")
        if isinstance(eligible, str) or not isinstance(eligible, (Sequence, np.ndarray)):
            raise InputError(f"eligible must be a sequence of names; got {eligible!r}")
        mask = np.zeros(len(self.actions), dtype=np.bool_)
        for name in eligible:
            mask[self.index(name)] = True
        count = np.count_nonzero(mask)
        if count == 0:
            raise ActionError("no action is eligible; serve the decision point's fallback with p 1")
        if count < len(eligible):
            raise InputError("eligible names an action twice; every name may stand once")
        return mask

    def index(self, action: str) -> int:
        """Return the place of ``action`` in ``actions``.

        Args:
            action: a name.

        Raises:
            ActionError: the policy does not know it.
        """
        try:
            return self._index[action]
        except (KeyError, TypeError):
            raise inputs.unknown_action(action, self.actions) from None

    def _reserved_shares(self, mask: Mask | None) -> Floats:
        shares: Floats = np.zeros(len(self.actions))
        for name, (budget, share) in self._reserved.items():
            i = self._index[name]
            if self._plays[i] < budget and (mask is None or mask[i]):
                shares[i] = share
        total = float(shares.sum())
        return shares if total <= 0.5 else shares * (0.5 / total)

    @abstractmethod
    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        """Return scores (K,) and the distribution (K,) before the floor, nil where masked."""

    # -- learning --------------------------------------------------------------------------------

    def learn(
        self, x: Any, action: str, reward: float, *, weight: float = 1.0, bucket: int | None = None
    ) -> None:
        """Learn one reward; on any error nothing was changed.

        Args:
            x: the context of the decision (a joint model: the chosen action's features).
            action: what was done.
            reward: any finite number for linear models, [0, 1] for Beta posteriors.
            weight: how many such observations it counts for, >= 0.
            bucket: time bucket of the decision, for policies that forget; without one, every
                update is a bucket of its own. Policies that do not forget ignore it.
        """
        index = self.index(action)
        if bucket is not None:
            bucket = inputs.bucket(bucket)
        self._learn(x, index, reward, inputs.weight(weight), bucket)
        if self.actions and weight > 0.0:
            self._plays[index] += 1.0
        self.updates += 1

    def learn_batch(
        self,
        X: Any,
        actions: Sequence[str],
        rewards: Any,
        *,
        weights: Any = None,
        buckets: Sequence[int] | None = None,
    ) -> None:
        """Learn n rewards at once, all or none; the result equals learning them one by one.

        Args:
            X: n contexts: (n, d) for linear models, a sequence otherwise.
            actions: n names.
            rewards: n rewards.
            weights: n weights; ``None``: all 1.
            buckets: n time buckets; see :meth:`learn`.

        Raises:
            InputError: lengths that differ, or a row that :meth:`learn` would refuse.
            ActionError: an unknown name.
        """
        if isinstance(actions, str):
            raise InputError(f"actions must be a sequence of names, not the string {actions!r}")
        n = len(actions)
        given = (X, rewards, *(v for v in (weights, buckets) if v is not None))
        if any(len(values) != n for values in given):
            raise InputError(f"X, actions, rewards and weights must all have {n} rows")
        indexes = np.array([self.index(name) for name in actions], dtype=np.intp)
        checked = np.array(
            [inputs.weight(w) for w in weights] if weights is not None else [1.0] * n
        )
        times = None if buckets is None else [inputs.bucket(b) for b in buckets]
        self._learn_batch(X, indexes, rewards, checked, times)
        if self.actions:
            np.add.at(self._plays, indexes[checked > 0.0], 1.0)
        self.updates += n

    def revise(
        self, x: Any, action: str, change: float, *, weight: float = 1.0, bucket: int | None = None
    ) -> None:
        """Correct the reward of an update already learned by ``change``, exactly.

        Afterwards the sums are those of having learned the corrected reward in the first place.

        Args:
            x: the context, as the update was learned.
            action: likewise.
            change: new reward minus old reward.
            weight: as the update was learned.
            bucket: likewise; a policy that forgets needs it.

        Raises:
            InputError: a malformed context, or no bucket for a policy that forgets.
            ActionError: an unknown name.
        """
        index = self.index(action)
        if bucket is not None:
            bucket = inputs.bucket(bucket)
        self._revise(x, index, inputs.reward(change), inputs.weight(weight), bucket)

    @abstractmethod
    def _learn(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        """Validate ``x`` and ``reward``, then add them."""

    @abstractmethod
    def _learn_batch(
        self,
        rows: Any,
        indexes: NDArray[np.intp],
        rewards: Any,
        weights: Floats,
        buckets: Sequence[int] | None,
    ) -> None:
        """Validate all rows, then add them."""

    @abstractmethod
    def _revise(self, x: Any, index: int, change: float, weight: float, bucket: int | None) -> None:
        """Validate ``x``, then add ``change`` to the rewards alone."""

    def _withdraw(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        """Validate, then take back what `_learn` added; a policy of one's own may leave it out."""
        raise InputError(f"{type(self).__name__} takes nothing back; relearn it without the update")

    # -- actions that come and go ----------------------------------------------------------------

    def add_action(self, name: str, *, explore: int = 0, share: float = 0.05) -> None:
        """Add an action with its prior and, if wanted, a budget of forced exploration.

        Until it was learned from ``explore`` times it gets at least ``share`` of the mass wherever
        it is eligible; that share is part of the distribution, so propensities stay exact. All
        reserved shares together take at most half.

        Args:
            name: a new name.
            explore: number of updates >= 0 that end the budget.
            share: in [0, 0.5].
        """
        added = inputs.names((*self.actions, name))
        inputs.parameter("share", share, 0.0, 0.5)
        inputs.parameter("explore", explore, 0, 1e9)
        self._reindex(added, [*range(len(self.actions)), -1])
        if explore:
            self._reserved[name] = (float(explore), float(share))

    def remove_action(self, name: str) -> None:
        """Remove an action and what was learned of it (a replay of the log brings it back).

        Deltas are from here on since the removal: merge before removing.

        Args:
            name: an action of this policy.

        Raises:
            InputError: it is the last one.
        """
        gone = self.index(name)
        if len(self.actions) == 1:
            raise InputError(f"{name!r} is the last action; a policy needs one to choose")
        kept = [i for i in range(len(self.actions)) if i != gone]
        self._reserved.pop(name, None)
        self._base = None
        self._removals += 1
        self._reindex(tuple(self.actions[i] for i in kept), kept)
        self._base = self.state()

    def _reindex(self, actions: tuple[str, ...], order: list[int]) -> None:
        meta, sums = self._meta(), self._all_sums()
        if self._base is not None:
            base_meta, base_sums = self._unpacked(self._base)
            base_meta["config"] = {**base_meta["config"], "actions": list(actions)}
            self._base = states.pack(base_meta, self._reordered(base_sums, order))
        self.actions = actions
        self._index = {name: i for i, name in enumerate(actions)}
        self._install(meta, self._reordered(sums, order))

    def _reordered(self, sums: Sums, order: list[int]) -> Sums:
        return states.reorder(sums, {**self._action_axes(), "plays": 0}, order)

    # -- state, deltas, merges -------------------------------------------------------------------

    def state(self) -> State:
        """Return all that was learned: float64 sums and ``"meta"``, a uint8 array of JSON."""
        return states.pack(self._meta(), self._all_sums())

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the policy that a state describes.

        Args:
            state: what :meth:`state` returned, of any copy.

        Raises:
            StateError: another algorithm, version or shape, damaged JSON, non-finite sums.
        """
        meta, sums = states.unpack(state, algorithm=cls.algorithm, version=cls.version)
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
        """Refuse a header that asks for more memory than the state's arrays take."""
        if sums.get("plays", np.zeros(0)).shape != (len(config["actions"]),):
            raise StateError("the state has no 'plays' with one number per action")

    def delta(self, since: Mapping[str, Any] | None = None, *, id: str | None = None) -> State:  # noqa: A002
        """Return what was learned since a state, to be merged into another copy of it.

        Args:
            since: a state of this policy; default: the one it was made from, or nothing learned.
            id: a name that no other delta has; default: a random one.
        """
        meta, sums = self._meta(), self._all_sums()
        base = self._base if since is None else since
        base_meta = None
        if base is not None:
            base_meta, base_sums = self._unpacked(base)
            sums = self._difference(meta, sums, base_meta, base_sums)
            meta["updates"] -= base_meta["updates"]
        header = delta_header(id, merged=self._merged, emitted=self._emitted, base=base_meta)
        self._emitted[header["delta"]] = self.updates
        return states.pack({**meta, **header}, sums)

    def merge(self, deltas: Sequence[Mapping[str, Any]]) -> None:
        """Add deltas of other copies, in any order and grouping; all or none.

        A delta that was merged before is refused, also where it comes inside another one: a delta
        lists the deltas that its maker had merged since its own base.

        Args:
            deltas: what :meth:`delta` returned, each to be merged once and never again.

        Raises:
            MergeError: a delta was merged before, stands twice in the list, is this policy's own,
                or does not fit.
        """
        if isinstance(deltas, Mapping):
            raise MergeError("merge takes a list of deltas; put this one into a list")
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
        self._install({**meta, "merged": sorted(seen)}, sums)

    def _unpacked(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], Sums]:
        """Return header and sums of a state that must fit this policy."""
        meta, sums = states.unpack(state, algorithm=self.algorithm, version=self.version)
        if meta["config"] != self._meta()["config"]:
            raise StateError(
                f"the state was made with {meta['config']}, this policy with "
                f"{self._meta()['config']}; use one configuration for all copies"
            )
        states.whole(meta, "updates")
        if states.whole(meta, "removals") != self._removals:
            raise StateError(
                "an action was removed in one copy and not in the other, so what it had learned "
                "cannot be told apart. Merge first, remove afterwards, everywhere."
            )
        states.check_shapes(sums, self._shapes(meta))
        return meta, sums

    def _meta(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "version": self.version,
            "config": {"actions": list(self.actions), "floor": self.floor, **self._config()},
            "updates": self.updates,
            "removals": self._removals,
            "reserved": {name: list(pair) for name, pair in sorted(self._reserved.items())},
            "merged": sorted(self._merged),
            **self._counters(),
        }

    def _all_sums(self) -> Sums:
        return {"plays": self._plays.copy(), **self._sums()}

    def _install(self, meta: dict[str, Any], sums: Sums) -> None:
        states.check_shapes(sums, self._shapes(meta))
        counters = states.whole(meta, "updates"), states.whole(meta, "removals")
        reserved, merged = states.reservations(meta), states.texts(meta, "merged")
        if (sums["plays"] < 0.0).any():
            raise StateError("the state has negative counts; refuse it and use an older one")
        self._load(meta, sums)
        self._plays = np.array(sums["plays"], order="C")
        self.updates, self._removals = counters
        self._reserved, self._merged = reserved, merged

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
