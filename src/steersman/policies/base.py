"""Base class of all policies: validation, floor, drawing and learning.

A subclass computes scores and sums. `mergeable` handles states, deltas and merges.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from steersman.errors import ActionError, InputError
from steersman.errors.format import brief
from steersman.policies import inputs, states
from steersman.policies.choice import Choice, all_of, draw, mix_floor, mix_reserved
from steersman.policies.configurations import Configurations, are_configurations
from steersman.policies.mergeable import Mergeable

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from steersman.policies.states import Sums

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

Reads = Literal["vector", "key", "action_features", "context", "nothing"]
_MODULE: type = ModuleType  # `random` and `numpy.random` are modules, not generators


class ChoicePolicy(Mergeable):
    """Base class of policies over named actions.

    A policy is not thread-safe: even decisions fill caches. Give each thread a copy
    (`copy.deepcopy`, or `load_policy` of its state).

    Args:
        actions: K different names. Every (K,) array follows their order.
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.

    Attributes:
        reads: what `decide` and `learn` get as ``x``: ``vector``, the encoded context; ``key``, one
            category of it; ``action_features``, those of the chosen action; ``context``, its
            fields, in `decide` only; or ``nothing``. A policy that reads a vector or action
            features takes its length as ``dim``.
        action_kinds: kinds of actions that it supports: ``choice``, ``mixed`` or ``sequence``.
        state_per_action: whether actions share nothing that is learned.
        second_moments: whether the state has a matrix of ``dim`` rows for each model.
        learns_online: whether `learn` changes its decisions; else it is trained and published.
        continuous: whether nearly equal states give nearly equal probabilities; False if the best
            estimate takes all.

    Raises:
        InputError: duplicate or empty names, or a floor out of range.

    >>> from steersman.policies import LinUCB
    >>> isinstance(LinUCB(["a", "b"], dim=2), ChoicePolicy)
    True
    """

    reads: Reads
    action_kinds: ClassVar[frozenset[str]] = frozenset({"choice"})
    state_per_action: ClassVar[bool] = True
    second_moments: ClassVar[bool] = False
    learns_online: ClassVar[bool] = True
    continuous: ClassVar[bool] = True

    def __init__(self, actions: Sequence[str], *, floor: float = 0.0) -> None:
        super().__init__(inputs.names(actions), inputs.floor(floor))
        self._index = {name: i for i, name in enumerate(self.actions)}
        self._by_parts: Configurations | None = None

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
            x: context; see the policy's class.
            rng: random generator. One ``random()`` is drawn from it.
            eligible: eligible actions of this request. ``None``: all. For configurations, the JSON
                of some parts selects all configurations with these values.
            features: features of the actions, for joint models only.

        Raises:
            InputError: malformed context, or ``rng`` is not a generator (for example a seed).
            ActionError: unknown name, or no eligible action (use the fallback then).
        """
        names, mask, scores, distribution = self._decide(x, eligible, features)
        try:
            u = rng.random()
        except (AttributeError, TypeError):
            raise inputs.no_generator(rng) from None
        if type(rng) is _MODULE:  # its draws could not be repeated
            raise inputs.no_generator(rng)
        index = draw(distribution, u)
        if mask is None:
            mask = all_of(len(distribution))
        else:
            scores = np.where(mask, scores, np.nan)
        return Choice(names[index], float(distribution[index]), distribution, scores, mask, u)

    def decide_many(
        self, contexts: Sequence[Any] | Floats, *, rng: np.random.Generator
    ) -> list[Choice]:
        """Return a choice per context, bit-identical to :meth:`decide` for each in turn.

        All actions are eligible. Features of actions are not supported.

        Args:
            contexts: any number of contexts; an array (n, d) for policies over vectors.
            rng: random generator. One ``random()`` is drawn per context.

        Raises:
            InputError: malformed context. Uniforms for earlier contexts may already be drawn.
        """
        inputs.count("contexts", contexts)
        return [self.decide(x, rng=rng) for x in contexts]

    @property
    def likeness(self) -> Hashable:
        """Key of policies that `decide_alike` can batch together. None: not supported.

        Policies with an equal key make equal choices from equal scores.
        """
        return None

    def distribution(
        self, x: Any, *, eligible: Sequence[str] | None = None, features: Any = None
    ) -> Floats:
        """Return the (K,) probabilities that :meth:`decide` draws from, in ``actions`` order.

        Args:
            x: as in :meth:`decide`.
            eligible: as in :meth:`decide`.
            features: as in :meth:`decide`.
        """
        return self._decide(x, eligible, features)[3]

    def _decide(
        self, x: Any, eligible: Sequence[str] | None, features: Any
    ) -> tuple[tuple[str, ...], Mask | None, Floats, Floats]:
        """Return names, mask, scores and the final distribution, all of one length."""
        mask = self._mask(eligible)
        scores, distribution = self._score(x, mask, features)
        if self._reserved or self.floor:
            distribution = self._mixed(mask, distribution)
        return self.actions, mask, scores, distribution

    def _mixed(self, mask: Mask | None, distribution: Floats) -> Floats:
        """Return the distribution with the floor and the shares of new actions mixed in."""
        if self._reserved:
            distribution = mix_reserved(distribution, self._reserved_shares(mask))
        return mix_floor(distribution, mask, self.floor)

    def _mask(self, eligible: Sequence[str] | None) -> Mask | None:
        if eligible is None:
            if self.actions:
                return None
            raise ActionError("this policy has no actions; add one, or serve the fallback")
        if isinstance(eligible, str) or not isinstance(eligible, (Sequence, np.ndarray)):
            raise InputError(f"eligible must be a sequence of names; got {brief(eligible)}")
        mask = np.zeros(len(self.actions), dtype=np.bool_)
        configurations = self._are_configurations
        name: Any  # of a caller who does not check types, anything
        for name in eligible:
            if configurations and not (isinstance(name, str) and name in self._index):
                mask |= self._with_values(name)
            else:
                mask[self.index(name)] = True
        count = np.count_nonzero(mask)
        if count == 0:
            raise ActionError("no action is eligible; serve the decision point's fallback with p 1")
        if (len(set(eligible)) if configurations else count) < len(eligible):
            raise InputError("eligible has a duplicate action; name each action once")
        return mask

    @cached_property
    def _are_configurations(self) -> bool:
        return are_configurations(self.actions)

    def _with_values(self, name: str) -> Mask:
        """Return the mask of configurations with the given values."""
        if self._by_parts is None:
            self._by_parts = Configurations(self.actions)
        return self._by_parts.with_values(name)

    def index(self, action: str) -> int:
        """Return the index of ``action`` in ``actions``.

        Args:
            action: name of the action.

        Raises:
            ActionError: unknown action.
        """
        try:
            return self._index[action]
        except (KeyError, TypeError, ValueError):  # the last of what numpy does not hash
            raise inputs.unknown_action(action, self.actions) from None

    def _reserved_shares(self, mask: Mask | None) -> Floats:
        """Return (K,) the reserved probability of new actions before the floor."""
        shares: Floats = np.zeros(len(self.actions))
        eligible = len(self.actions) if mask is None else np.count_nonzero(mask)
        even = self.floor / eligible
        for name, (budget, share) in self._reserved.items():
            i = self._index[name]
            if self._plays[i] < budget and (mask is None or mask[i]):
                shares[i] = max(share - even, 0.0) / (1.0 - self.floor)
        total = float(shares.sum())
        return shares if total <= 0.5 else shares * (0.5 / total)

    @abstractmethod
    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        """Return scores (K,) and the distribution (K,) before the floor, 0 where masked."""

    # -- learning --------------------------------------------------------------------------------

    def learn(
        self, x: Any, action: str, reward: float, *, weight: float = 1.0, bucket: int | None = None
    ) -> None:
        """Learn one reward. After an error nothing is changed.

        Args:
            x: context of the decision. For a joint model: the features of the chosen action.
            action: action that was taken.
            reward: in [0, 1] for Beta posteriors; any finite number for linear models, if sums of
                rewards times features stay below 1e250.
            weight: number of observations that the reward counts for, >= 0.
            bucket: time bucket of the decision, for policies that forget. None: every update is a
                separate bucket. All updates or none must have a bucket. Other policies ignore it.
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
        """Learn n rewards, all or none. The result equals learning them one by one.

        Args:
            X: n contexts: (n, d) for linear models, a sequence for others.
            actions: n action names.
            rewards: n rewards.
            weights: n weights. ``None``: all 1.
            buckets: n time buckets; see :meth:`learn`.

        Raises:
            InputError: different lengths, sets (they have no order), or a row that :meth:`learn`
                refuses.
            ActionError: unknown action.
        """
        if isinstance(actions, str):
            got = brief(actions)
            raise InputError(f"actions must be a sequence of names, not the string {got}")
        n = inputs.count("actions", actions)
        optional = {"weights": weights, "buckets": buckets}
        given = {name: rows for name, rows in optional.items() if rows is not None}
        given |= {"X": X, "rewards": rewards}
        for what, rows in given.items():
            if (found := inputs.count(what, rows)) != n:
                raise InputError(
                    f"{what} has {found} rows, but actions has {n}; pass one row per action"
                )
        indexes = np.array(inputs.each(self.index, actions), dtype=np.intp)
        checked = np.ones(n) if weights is None else np.array(inputs.each(inputs.weight, weights))
        times = None if buckets is None else inputs.each(inputs.bucket, buckets)
        self._learn_batch(X, indexes, rewards, checked, times)
        if self.actions:
            np.add.at(self._plays, indexes[checked > 0.0], 1.0)
        self.updates += n

    def revise(
        self, x: Any, action: str, change: float, *, weight: float = 1.0, bucket: int | None = None
    ) -> None:
        """Correct the reward of a learned update by ``change``, exactly.

        The sums are then the same as if the policy had learned the corrected reward.

        Args:
            x: context of the update.
            action: action of the update.
            change: new reward minus old reward.
            weight: weight of the update.
            bucket: time bucket of the update; required for a policy that forgets.

        Raises:
            InputError: malformed context, or no bucket for a policy that forgets.
            ActionError: unknown action.
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
        """Validate, then subtract the sums of `_learn`. Optional for subclasses."""
        raise InputError(
            f"{type(self).__name__} cannot withdraw updates; relearn it from the log without the "
            "update"
        )

    # -- actions that come and go ----------------------------------------------------------------

    def add_action(self, name: str, *, explore: int = 0, share: float = 0.05) -> None:
        """Add an action with its prior and an optional budget of forced exploration.

        Until the action has ``explore`` updates, it gets at least ``share`` of the probability when
        it is eligible, including its share of the floor. Propensities stay exact. All reserved
        shares together take at most half of the probability above the floor.

        Args:
            name: new name.
            explore: number of updates >= 0 after which the budget ends.
            share: minimum probability, in [0, 0.5].
        """
        added = inputs.names((*self.actions, name))
        inputs.parameter("share", share, 0.0, 0.5)
        inputs.whole("explore", explore, 0, 10**9)
        self._reindex(added, [*range(len(self.actions)), -1])
        if explore:
            self._reserved[name] = (float(explore), float(share))

    def remove_action(self, name: str) -> None:
        """Remove an action and its learned sums. Only a replay of the log can restore them.

        Later deltas start at the removal, so merge before you remove.

        Args:
            name: action of this policy.

        Raises:
            InputError: it is the last action.
        """
        gone = self.index(name)
        if len(self.actions) == 1:
            raise InputError(f"cannot remove {name!r}: it is the last action; keep at least one")
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
        self._by_parts = None
        self.__dict__.pop("_are_configurations", None)
        self._install(meta, self._reordered(sums, order))

    def _reordered(self, sums: Sums, order: list[int]) -> Sums:
        return states.reorder(sums, {**self._action_axes(), "plays": 0}, order)
