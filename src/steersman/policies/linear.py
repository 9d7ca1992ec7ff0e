"""Base class of linear policies with one Gaussian model per arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from steersman.errors import InputError, MergeError, StateError
from steersman.errors.format import brief
from steersman.policies import inputs, states
from steersman.policies.arm_sums import LARGEST_GRAM, LARGEST_MOMENT, ArmSums
from steersman.policies.base import ChoicePolicy, Reads
from steersman.policies.batch import choices

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from steersman.policies.choice import Choice
    from steersman.policies.states import Sums

    Floats = NDArray[np.float64]


_ROUNDING = 1e-6  # what a delta takes back may leave that much below zero
_GRAM_ROUNDING = 1e-3  # likewise of an arm's sums of squares, relative to all of them
_SUM_ROUNDING = 1e-9  # likewise of the sums of squares that a merge adds up
_LAST_TIME = 2**53  # the last time bucket that a state can name
_FEW = 4  # fewer decisions are made faster one by one


class LinearPolicy(ChoicePolicy):
    """Policy with independent linear models per arm and a Gaussian prior N(0, I/λ).

    Args:
        actions: K names.
        dim: number of features d >= 1.
        prior_precision: λ > 0.
        noise_var: noise variance of the reward, > 0.
        floor: total mass in [0, 1) spread evenly.
        forget: decay factor in (0, 1] of older updates, per time bucket.
    """

    reads: Reads = "vector"
    second_moments = True
    _scores_rows: ClassVar[bool] = False  # whether `_score_moments` is there
    _by_buckets: bool | None = None  # where it forgets, what batches and buckets have shown
    _at_once = False  # whether a batch without buckets is of one time

    def __init__(
        self,
        actions: Sequence[str],
        dim: int,
        *,
        prior_precision: float,
        noise_var: float,
        floor: float,
        forget: float,
    ) -> None:
        super().__init__(actions, floor=floor)
        self.dim = inputs.whole("dim", dim, 1, inputs.MOST_FEATURES)
        self.forget = inputs.parameter("forget", forget, 0.0, 1.0, open_low=True)
        self._arms = ArmSums(
            len(self.actions) if self.state_per_action else 1,
            dim,
            prior_precision=prior_precision,
            noise_var=noise_var,
            forget=self.forget,
        )

    def _arm(self, index: int) -> int:
        return index if self.state_per_action else 0

    def _vector(self, x: Any) -> Floats:
        return inputs.vector(x, self.dim)

    def _vectors(self, contexts: Sequence[Any] | Floats) -> Floats:
        if isinstance(contexts, np.ndarray):
            return inputs.matrix(contexts, self.dim)
        return np.array([self._vector(x) for x in contexts])

    def decide_many(
        self, contexts: Sequence[Any] | Floats, *, rng: np.random.Generator
    ) -> list[Choice]:
        """Return a choice for each context: see `ChoicePolicy.decide_many`."""
        if type(contexts) is not list:
            inputs.count("contexts", contexts)
        if len(contexts) < _FEW or not self._scores_rows:
            return super().decide_many(contexts, rng=rng)
        return self._choose(*self._moments(contexts), rng=rng)

    @property
    def likeness(self) -> Hashable:
        """See `ChoicePolicy.likeness`: class, actions and parameters, where rows can be scored."""
        if self._reserved or not self._scores_rows:
            return None
        return type(self), self.actions, self.floor, *self._config().values()

    def _moments(self, contexts: Sequence[Any] | Floats) -> tuple[Floats, Floats]:
        """Return the means and variances (n, K) of the scores of contexts."""
        self._mask(None)
        return self._arms.means_and_variances_of_rows(self._vectors(contexts))

    def _choose(
        self, means: Floats, variances: Floats, *, rng: np.random.Generator
    ) -> list[Choice]:
        scores, distributions = self._score_moments(means, variances)
        reserved = self._reserved_shares(None) if self._reserved else None
        return choices(
            self.actions, scores, distributions, floor=self.floor, reserved=reserved, rng=rng
        )

    def _score_moments(self, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Return scores and distributions (n, K), as `_score` does of each row's."""
        raise NotImplementedError

    def _no_features(self, features: Any) -> None:
        if features is not None:
            raise InputError(
                f"{type(self).__name__} has one model per action and uses no per-action features; "
                "use JointSquareCB or JointLinTS for those"
            )

    def _learn(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        row, value, arm = self._vector(x), inputs.reward(reward), self._arm(index)
        self._arms.ensure_room(arm, row, weight * value)
        self._arms.add(arm, row, value, weight * self._tick(bucket))

    def _learn_batch(
        self,
        rows: Any,
        indexes: NDArray[np.intp],
        rewards: Any,
        weights: Floats,
        buckets: Sequence[int] | None,
    ) -> None:
        matrix = self._matrix(rows)
        values = np.array(inputs.each(inputs.reward, rewards))
        arms = np.array([self._arm(int(i)) for i in indexes], dtype=np.intp)
        with np.errstate(over="ignore", invalid="ignore"):
            totals = np.abs(weights * values) @ np.abs(matrix)
            # As length and direction, since the squares of what is allowed leave float64.
            largest = float(totals.max(initial=0.0)) or 1.0
            direction = totals / largest
        for arm in np.unique(arms):
            self._arms.ensure_room(int(arm), direction, largest)
        aged = weights * self._tick_batch(len(indexes), buckets)
        for arm in np.unique(arms):
            chosen = arms == arm
            self._arms.add_batch(int(arm), matrix[chosen], values[chosen], aged[chosen])

    def _matrix(self, rows: Any) -> Floats:
        return inputs.matrix(rows, self.dim) if len(rows) else np.zeros((0, self.dim))

    def _revise(self, x: Any, index: int, change: float, weight: float, bucket: int | None) -> None:
        row = self._vector(x)
        if bucket is None and self.forget < 1.0:
            raise InputError(
                "this policy forgets: pass the bucket of the corrected update, so that both "
                "have the same weight. Learn with buckets to know it"
            )
        at = self._arms.clock if bucket is None else bucket
        self._refuse_later(at)
        scaled = weight * self._arms.age_weight(at)
        self._arms.ensure_room(self._arm(index), row, scaled * change)
        self._arms.revise(self._arm(index), row, change, scaled)

    def _withdraw(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        row, value = self._vector(x), inputs.reward(reward)
        if bucket is None and self.forget < 1.0:
            raise InputError("this policy forgets: pass the bucket of the withdrawn update")
        at = self._arms.clock if bucket is None else bucket
        aged = weight * self._arms.age_weight(at)
        self._arms.ensure_room(self._arm(index), row, aged * value)
        self._arms.ensure_learned(self._arm(index), row, aged)
        self._refuse_later(at)
        self._arms.remove(self._arm(index), row, value, aged)

    def _refuse_later(self, bucket: int) -> None:
        if self.forget < 1.0 and bucket > self._arms.clock:
            raise InputError(
                f"bucket {bucket} is later than the latest learned bucket, {self._arms.clock}; "
                "nothing changed. Pass the bucket of the learned update"
            )

    def _tick(self, bucket: int | None) -> float:
        """Move the clock for an update of time ``bucket`` and return the weight of its age."""
        if self.forget == 1.0:
            return 1.0
        if bucket is None:
            now = self._later(1)
            if self._by_buckets is not False:
                self._keep_time(by_buckets=False)
            self._arms.tick(now)
            return 1.0
        if not self._by_buckets:
            self._keep_time(by_buckets=True)
        if bucket > self._arms.clock:
            self._arms.tick(bucket)
            self._arms.settle()
        return self._arms.age_weight(bucket)

    def _tick_batch(self, n: int, buckets: Sequence[int] | None) -> Floats:
        if self.forget == 1.0 or n == 0:
            return np.ones(n)
        last = self._later(0 if self._at_once else n) if buckets is None else max(buckets)
        self._keep_time(by_buckets=buckets is not None)
        if buckets is None and self._at_once:
            return np.ones(n)
        times = np.arange(last - n + 1, last + 1) if buckets is None else np.asarray(buckets)
        self._arms.tick(last)
        if buckets is not None:
            self._arms.settle()
        ages = np.maximum(self._arms.clock - times, 0)
        weights: Floats = self.forget**ages
        return weights

    def _later(self, updates: int) -> int:
        """Return the time after so many updates, each one step."""
        if self._arms.clock > _LAST_TIME - updates:
            raise InputError(
                f"the clock of this policy is at {self._arms.clock}; {updates} more updates "
                "would exceed 2^53. Create a new policy, and number buckets from 0"
            )
        return self._arms.clock + updates

    def _keep_time(self, *, by_buckets: bool) -> None:
        """Refuse to count time in buckets here and in updates there, where ages mean nothing."""
        if self._by_buckets not in {None, by_buckets}:
            got, had = ("a time bucket", "none") if by_buckets else ("no time bucket", "one")
            raise InputError(
                f"this policy forgets: the update has {got}, but earlier updates had {had}; "
                "nothing was learned. Pass a bucket with every update, or with none"
            )
        self._by_buckets = by_buckets

    def _learn_at_once(self, X: Any, actions: Sequence[str], rewards: Any, weights: Floats) -> None:
        """Learn rows as `learn_batch` does, of one time: what it is now."""
        self._at_once = True
        try:
            self.learn_batch(X, actions, rewards, weights=weights)
        finally:
            self._at_once = False

    # -- state -----------------------------------------------------------------------------------

    def _meta(self) -> dict[str, Any]:
        # Only where it is known: policies that do not forget have no use for it.
        timed = {} if self._by_buckets is None else {"buckets": self._by_buckets}
        return {**super()._meta(), **timed}

    def _counters(self) -> dict[str, Any]:
        return {"clock": self._arms.clock}

    def _sums(self) -> Sums:
        return self._arms.sums()

    def _sum_shapes(self, meta: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        states.whole(meta, "clock")
        arms = len(self.actions) if self.state_per_action else 1
        packed = self._arms.packed
        return {"gram": (arms, packed), "moment": (arms, self.dim), "count": (arms,)}

    def _load(self, meta: dict[str, Any], sums: Sums) -> None:
        count = sums["count"]
        if (count < -_ROUNDING).any():
            raise StateError("the state has negative counts; use an older state")
        for name, largest in (("gram", LARGEST_GRAM), ("moment", LARGEST_MOMENT)):
            array = sums[name]
            if max(array.max(initial=0.0), -array.min(initial=0.0)) > largest:
                message = f"the state's {name!r} goes beyond {largest:g}; use an older state"
                raise StateError(message)
        squares = sums["gram"][:, self._squares_at]
        size = np.maximum(1.0, np.abs(squares).sum(axis=1, keepdims=True))
        if (squares < -_GRAM_ROUNDING * size).any():
            raise StateError("the state's 'gram' has negative sums of squares; use an older state")
        by_buckets = meta.get("buckets")
        if not isinstance(by_buckets, bool | None):
            raise StateError(
                f"the header's 'buckets' must be true, false or left out; got {by_buckets!r:.80}"
            )
        count = np.where(count < 0.0, 0.0, count)
        self._arms.load({**sums, "count": count}, states.whole(meta, "clock"))
        self._by_buckets = by_buckets

    @property
    def _squares_at(self) -> NDArray[np.intp]:
        """(d,) places of the diagonal in a packed upper triangle."""
        columns = np.arange(self.dim)
        return columns * (columns + 3) // 2

    @classmethod
    def _check_size(cls, config: dict[str, Any], sums: Sums) -> None:
        """Refuse a header whose dimensions are not those of the arrays, before memory is taken."""
        super()._check_size(config, sums)
        size = config.get("dim")
        size = 1 if size is None else size
        drawn = config.get("random_features", 0)
        size = size + drawn if isinstance(size, int) and isinstance(drawn, int) else 0
        gram = sums.get("gram")
        arms = len(config["actions"]) if cls.state_per_action else 1
        if gram is None or gram.ndim != 2 or len(gram) != arms:
            raise StateError("the state has no 'gram' with one row per action")
        if gram.shape[1] != size * (size + 1) // 2:
            raise StateError(f"the state's 'gram' does not have the shape of dim {size}")

    def _reindex(self, actions: tuple[str, ...], order: list[int]) -> None:
        if self.state_per_action:
            self._arms.ensure_size(len(actions))
        super()._reindex(actions, order)

    def _action_axes(self) -> dict[str, int]:
        return {"gram": 0, "moment": 0, "count": 0} if self.state_per_action else {}

    def _difference(
        self, meta: dict[str, Any], sums: Sums, base_meta: dict[str, Any], base: Sums
    ) -> Sums:
        age = meta["clock"] - base_meta["clock"]
        if age < 0:
            raise StateError(
                f"the base state has time {base_meta['clock']}, but this policy has time "
                f"{meta['clock']}; pass an earlier state of this policy"
            )
        factor = self.forget**age
        return {
            name: array - (base[name] if name == "plays" else factor * base[name])
            for name, array in sums.items()
        }

    def _sum(
        self, meta: dict[str, Any], sums: Sums, other_meta: dict[str, Any], other: Sums
    ) -> tuple[dict[str, Any], Sums]:
        now = max(meta["clock"], other_meta["clock"])
        own, theirs = (self.forget ** (now - m["clock"]) for m in (meta, other_meta))
        total = {
            name: array + other[name] if name == "plays" else own * array + theirs * other[name]
            for name, array in sums.items()
        }
        at = self._squares_at
        size = np.abs(own * sums["gram"][:, at]) + np.abs(theirs * other["gram"][:, at])
        squares = total["gram"][:, at]  # what was taken back leaves rounding below zero
        total["gram"][:, at] = np.where(
            (squares < 0.0) & (squares > -_SUM_ROUNDING * size), 0.0, squares
        )
        return {**meta, **self._time_of_both(meta, other_meta), "clock": now}, total

    def _time_of_both(self, *headers: dict[str, Any]) -> dict[str, bool]:
        """Return how time goes in headers; buckets and updates do not add up."""
        known = {m["buckets"] for m in headers if m.get("buckets") is not None}
        if len(known) == 2 and self.forget < 1.0:
            raise MergeError(
                "this policy forgets: either it or the delta learned with time buckets, the "
                "other without; nothing was changed. Use buckets in all copies, or in none"
            )
        return {"buckets": known.pop()} if known else {}


def decide_alike(
    parts: Sequence[tuple[ChoicePolicy, Floats]], *, rng: np.random.Generator
) -> list[Choice]:
    """Return the choices of several similar policies in one batch.

    Useful for many tenants with one declaration and few requests each: the cost of calls is shared.

    Args:
        parts: policies with equal `likeness`, each with its contexts (n, d).
        rng: random generator. One ``random()`` is drawn per context.

    Returns:
        The choices of :meth:`ChoicePolicy.decide_many` for each policy in turn, bit-identical.

    Raises:
        InputError: invalid pairs, or a malformed context. Uniforms for earlier contexts may already
            be drawn.

    >>> from steersman.policies import LinUCB
    >>> parts = [(LinUCB(["a", "b"], dim=1), np.ones((count, 1))) for count in (3, 2)]
    >>> [choice.propensity for choice in decide_alike(parts, rng=np.random.default_rng(0))]
    [0.5, 0.5, 0.5, 0.5, 0.5]
    """
    _check_alike(parts)
    if not parts:
        return []
    first = parts[0][0]
    linear = [(policy, rows) for policy, rows in parts if isinstance(policy, LinearPolicy)]
    if len(parts) == 1 or first.likeness is None or sum(len(rows) for _, rows in linear) < _FEW:
        return [one for policy, rows in parts for one in policy.decide_many(rows, rng=rng)]
    return linear[0][0]._choose(*_moments_alike(linear), rng=rng)  # noqa: SLF001


def _check_alike(parts: Any) -> None:
    if not isinstance(parts, (list, tuple)) or not all(map(_is_part, parts)):
        message = f"parts must be pairs of a policy and its contexts; got {brief(parts)}"
        raise InputError(message)
    kind = parts[0][0].likeness if len(parts) > 1 else None
    for place, (policy, rows) in enumerate(parts):
        inputs.count("contexts", rows)
        if kind is not None and place and policy.likeness != kind:
            raise InputError(
                f"part {place} has another class, actions or parameters than part 0; pass only "
                "policies that are equal in these"
            )


def _is_part(part: Any) -> bool:
    return isinstance(part, (list, tuple)) and len(part) == 2 and isinstance(part[0], ChoicePolicy)


def _moments_alike(parts: Sequence[tuple[LinearPolicy, Floats]]) -> tuple[Floats, Floats]:
    """Return `LinearPolicy._moments` (n, K) of policies that are alike, one after the other."""
    first = parts[0][0]
    first._mask(None)  # noqa: SLF001
    vectors = first._vectors(_stacked(parts))  # noqa: SLF001
    means, variances = np.empty((2, len(vectors), len(first.actions)))
    start = 0
    for policy, rows in parts:
        end = start + len(rows)
        policy._arms.fill(vectors[start:end], means[start:end], variances[start:end])  # noqa: SLF001
        start = end
    return means, variances


def _stacked(parts: Sequence[tuple[LinearPolicy, Floats]]) -> Floats:
    try:
        return np.concatenate([rows for _, rows in parts])
    except ValueError:
        for policy, rows in parts:
            policy._vectors(rows)  # noqa: SLF001 (says which is wrong)
        raise
