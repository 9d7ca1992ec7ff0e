"""What LinUCB, LinTS and the contextual epsilon-greedy share: one Gaussian linear model per arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from steersman.errors import InputError, StateError
from steersman.policies import inputs, states
from steersman.policies.arm_sums import LARGEST_GRAM, LARGEST_MOMENT, ArmSums
from steersman.policies.base import ChoicePolicy
from steersman.policies.together import choices

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from steersman.policies.choice import Choice
    from steersman.policies.states import Sums

    Floats = NDArray[np.float64]


_ROUNDING = 1e-6  # what a delta takes back may leave that much below zero
_GRAM_ROUNDING = 1e20  # likewise of the largest sums of squares, 1e33
_FEW = 4  # fewer decisions are made faster one by one


class LinearPolicy(ChoicePolicy):
    """A policy whose arms are independent linear models with a Gaussian prior N(0, I/λ).

    Args:
        actions: K names.
        dim: number of features d >= 1.
        prior_precision: λ > 0.
        noise_var: variance of a reward around its mean, > 0.
        floor: total mass in [0, 1) spread evenly.
        forget: factor in (0, 1] by which older updates weigh less, per time bucket.
        shared: whether all actions share one model instead of having one each.
    """

    _scores_rows: ClassVar[bool] = False  # whether `_score_moments` is there

    def __init__(
        self,
        actions: Sequence[str],
        dim: int,
        *,
        prior_precision: float,
        noise_var: float,
        floor: float,
        forget: float,
        shared: bool = False,
    ) -> None:
        super().__init__(actions, floor=floor)
        self.dim = inputs.whole("dim", dim, 1, 16_384)
        self.forget = inputs.parameter("forget", forget, 0.0, 1.0, open_low=True)
        self._shared = shared
        self._arms = ArmSums(
            1 if shared else len(self.actions),
            dim,
            prior_precision=prior_precision,
            noise_var=noise_var,
            forget=self.forget,
        )

    def _arm(self, index: int) -> int:
        """Return the model that learns from action ``index``."""
        return 0 if self._shared else index

    def _vector(self, x: Any) -> Floats:
        return inputs.vector(x, self.dim)

    def _vectors(self, contexts: Sequence[Any] | Floats) -> Floats:
        """Return `_vector` of each context, as rows."""
        if isinstance(contexts, np.ndarray):
            return inputs.matrix(contexts, self.dim)
        return np.array([self._vector(x) for x in contexts])

    def decide_many(
        self, contexts: Sequence[Any] | Floats, *, rng: np.random.Generator
    ) -> list[Choice]:
        """Return a choice for each context: see `ChoicePolicy.decide_many`."""
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
        values = np.array([inputs.reward(r) for r in rewards])
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
                "this policy forgets: name the bucket of the update that is corrected, so that the "
                "correction weighs as the update does; learn with buckets to know it"
            )
        at = self._arms.clock if bucket is None else bucket
        scaled = weight * self._arms.age_weight(at)
        self._arms.ensure_room(self._arm(index), row, scaled * change)
        self._arms.revise(self._arm(index), row, change, scaled)

    def _withdraw(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        row, value = self._vector(x), inputs.reward(reward)
        if bucket is None and self.forget < 1.0:
            raise InputError("this policy forgets: name the bucket of the update taken back")
        at = self._arms.clock if bucket is None else bucket
        aged = weight * self._arms.age_weight(at)
        self._arms.ensure_room(self._arm(index), row, aged * value)
        self._arms.ensure_learned(self._arm(index), row, aged)
        self._arms.remove(self._arm(index), row, value, aged)

    def _tick(self, bucket: int | None) -> float:
        """Move the clock for an update of time ``bucket`` and return the weight of its age."""
        if self.forget == 1.0:
            return 1.0
        if bucket is None:
            self._arms.tick(self._arms.clock + 1)
            return 1.0
        if bucket > self._arms.clock:
            self._arms.tick(bucket)
            self._arms.settle()
        return self._arms.age_weight(bucket)

    def _tick_batch(self, n: int, buckets: Sequence[int] | None) -> Floats:
        if self.forget == 1.0 or n == 0:
            return np.ones(n)
        start = self._arms.clock
        times = np.arange(start + 1, start + n + 1) if buckets is None else np.asarray(buckets)
        self._arms.tick(int(times.max()))
        if buckets is not None:
            self._arms.settle()
        ages = np.maximum(self._arms.clock - times, 0)
        weights: Floats = self.forget**ages
        return weights

    # -- state -----------------------------------------------------------------------------------

    def _counters(self) -> dict[str, Any]:
        return {"clock": self._arms.clock}

    def _sums(self) -> Sums:
        return self._arms.sums()

    def _sum_shapes(self, meta: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        states.whole(meta, "clock")
        arms = 1 if self._shared else len(self.actions)
        packed = self._arms.packed
        return {"gram": (arms, packed), "moment": (arms, self.dim), "count": (arms,)}

    def _load(self, meta: dict[str, Any], sums: Sums) -> None:
        count = sums["count"]
        if (count < -_ROUNDING).any():
            raise StateError("the state has negative counts; refuse it and use an older one")
        for name, largest in (("gram", LARGEST_GRAM), ("moment", LARGEST_MOMENT)):
            array = sums[name]
            if max(array.max(initial=0.0), -array.min(initial=0.0)) > largest:
                message = f"the state's {name!r} goes beyond {largest:g}; use an older state"
                raise StateError(message)
        columns = np.arange(self.dim)
        squares = sums["gram"][:, columns * (columns + 3) // 2]  # of the packed upper triangle
        if (squares < -_GRAM_ROUNDING).any():
            raise StateError("the state's 'gram' has negative sums of squares; use an older state")
        count = np.where(count < 0.0, 0.0, count)
        self._arms.load({**sums, "count": count}, states.whole(meta, "clock"))

    @classmethod
    def _check_size(cls, config: dict[str, Any], sums: Sums) -> None:
        """Refuse a header whose dimensions are not those of the arrays, before memory is taken."""
        super()._check_size(config, sums)
        size = config.get("dim")
        size = 1 if size is None else size
        drawn = config.get("random_features", 0)
        size = size + drawn if isinstance(size, int) and isinstance(drawn, int) else 0
        gram = sums.get("gram")
        arms = max(1, len(config["actions"]))
        if gram is None or gram.ndim != 2 or gram.shape[0] not in {0, 1, arms}:
            raise StateError("the state has no 'gram' with one row per action")
        if gram.shape[1] != size * (size + 1) // 2:
            raise StateError(f"the state's 'gram' does not have the shape of dim {size}")

    def _reindex(self, actions: tuple[str, ...], order: list[int]) -> None:
        if not self._shared:
            self._arms.ensure_size(len(actions))
        super()._reindex(actions, order)

    def _action_axes(self) -> dict[str, int]:
        return {} if self._shared else {"gram": 0, "moment": 0, "count": 0}

    def _difference(
        self, meta: dict[str, Any], sums: Sums, base_meta: dict[str, Any], base: Sums
    ) -> Sums:
        age = meta["clock"] - base_meta["clock"]
        if age < 0:
            raise StateError(
                f"the state to compare with is of time {base_meta['clock']} and this policy of "
                f"{meta['clock']}; give a state that this policy has gone on from"
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
        return {**meta, "clock": now}, total


def decide_alike(
    parts: Sequence[tuple[ChoicePolicy, Floats]], *, rng: np.random.Generator
) -> list[Choice]:
    """Return the choices of several policies, each for contexts of its own, made together.

    Many tenants of one declaration have a policy each and few requests at a time: what calls cost
    is shared by all of them.

    Args:
        parts: policies of one `likeness`, with the vectors (n, d) that each decides from.
        rng: the only source of randomness; one ``random()`` is taken for each context.

    Returns:
        The choices of :meth:`ChoicePolicy.decide_many` of one policy after the other, to the bit.

    Raises:
        InputError: a context is malformed; uniforms may have been taken for those before it.

    >>> from steersman.policies import LinUCB
    >>> parts = [(LinUCB(["a", "b"], dim=1), np.ones((count, 1))) for count in (3, 2)]
    >>> [choice.propensity for choice in decide_alike(parts, rng=np.random.default_rng(0))]
    [0.5, 0.5, 0.5, 0.5, 0.5]
    """
    first = parts[0][0]
    linear = [(policy, rows) for policy, rows in parts if isinstance(policy, LinearPolicy)]
    if len(parts) == 1 or first.likeness is None or sum(len(rows) for _, rows in linear) < _FEW:
        return [one for policy, rows in parts for one in policy.decide_many(rows, rng=rng)]
    means, variances = zip(*(policy._moments(rows) for policy, rows in linear), strict=True)  # noqa: SLF001
    return linear[0][0]._choose(np.concatenate(means), np.concatenate(variances), rng=rng)  # noqa: SLF001
