"""Thompson sampling with a Beta posterior per (key, action)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError, StateError
from steersman.errors.format import brief
from steersman.policies import inputs
from steersman.policies.base import ChoicePolicy
from steersman.policies.beta_choice import beta_choice_probabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.policies.states import Sums

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_LONGEST_KEY = 512
_PARAMETER_RANGE = (1e-3, 1e9)
_LARGEST_COUNT = 1e16  # a million updates of the largest weight, tenfold; quantiles fail at 1e18
_ROUNDING = 1e-6  # revisions may leave that much below zero


class BetaThompson(ChoicePolicy):
    """Beta Thompson sampling per key: an action's probability is that of the largest success rate.

    The context is a key, such as an intent. Every (key, action) pair has a Beta posterior that
    starts at the prior and learns a += r, b += 1 - r. Keys are added when first seen. Keys share
    nothing, unlike in linear models.

    Args:
        actions: K different names.
        prior: (a, b), both in [1e-3, 1e9]; (1, 1) is uniform. Trap: with a prior mean far
            above the truth, every new pair looks best.
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.

    Raises:
        InputError: argument out of range.

    >>> policy = BetaThompson(["search", "ask"])
    >>> policy.learn("refund", "search", 1.0)
    >>> policy.distribution("refund").round(6)
    array([0.666667, 0.333333])
    >>> policy.distribution("never seen")
    array([0.5, 0.5])

    Source:
        Chapelle, Li (2011), "An empirical evaluation of Thompson sampling", algorithm 2; the
        probabilities are integrated instead of sampled, so that they can be logged.
    """

    algorithm = "beta_thompson"
    reads = "key"

    def __init__(
        self,
        actions: Sequence[str],
        *,
        prior: tuple[float, float] = (1.0, 1.0),
        floor: float = 0.0,
    ) -> None:
        super().__init__(actions, floor=floor)
        try:
            paired = np.shape(prior) == (2,)
        except ValueError:  # a list of lists of other lengths
            paired = False
        if not paired:
            raise InputError(f"prior must be a pair (a, b); got {brief(prior)}")
        low, high = _PARAMETER_RANGE
        self.prior = (
            inputs.parameter("prior[0]", prior[0], low, high),
            inputs.parameter("prior[1]", prior[1], low, high),
        )
        self._counts: dict[str, Floats] = {}

    def posterior(self, key: str, action: str) -> tuple[float, float]:
        """Return (a, b) of the Beta posterior of ``action`` under ``key``.

        Args:
            key: context key, as in ``decide``.
            action: action name.

        Raises:
            ActionError: unknown action.
        """
        counts, index = self._counts.get(self._key(key)), self.index(action)
        successes, failures = (0.0, 0.0) if counts is None else counts[index]
        return float(self.prior[0] + successes), float(self.prior[1] + failures)

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        if features is not None:
            raise InputError("BetaThompson does not use features of actions; omit features")
        counts = self._counts.get(self._key(x))
        if counts is None:
            counts = np.zeros((len(self.actions), 2))
        # Revisions may leave a rounding error below zero; the posterior needs a, b > 0.
        a, b = (np.maximum(counts, 0.0) + self.prior).T
        means: Floats = a / (a + b)
        if mask is None:
            return means, beta_choice_probabilities(a, b)
        distribution: Floats = np.zeros(len(means))
        distribution[mask] = beta_choice_probabilities(a[mask], b[mask])
        return means, distribution

    def _key(self, x: Any) -> str:
        if isinstance(x, str) and len(x) <= _LONGEST_KEY and inputs.is_text(x):
            return x
        seen = f"{len(x)} characters" if isinstance(x, str) else brief(x)
        raise InputError(
            f"the key must be a string of 1 to {_LONGEST_KEY} characters; got {seen}. "
            "Name one context field of type category as the policy's key."
        )

    def _learn(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        self._add(self._key(x), index, inputs.unit_reward(reward), weight)

    def _learn_batch(
        self,
        rows: Any,
        indexes: NDArray[np.intp],
        rewards: Any,
        weights: Floats,
        buckets: Sequence[int] | None,
    ) -> None:
        keys = inputs.each(self._key, rows)
        values = inputs.each(inputs.unit_reward, rewards)
        for key, index, value, weight in zip(keys, indexes, values, weights, strict=True):
            self._add(key, int(index), value, float(weight))

    def _add(self, key: str, index: int, reward: float, weight: float) -> None:
        counts = self._counts.setdefault(key, np.zeros((len(self.actions), 2)))
        counts[index] += (weight * reward, weight * (1.0 - reward))

    def _revise(self, x: Any, index: int, change: float, weight: float, bucket: int | None) -> None:
        counts = self._counts.get(self._key(x))
        step = weight * change
        if counts is None or np.any(counts[index] + (step, -step) < -1e-9 * (1.0 + weight)):
            raise InputError(
                f"a revision by {change} would leave negative counts for this key and action; "
                "revise only a learned update, with its weight"
            )
        counts[index] = np.maximum(counts[index] + (step, -step), 0.0)

    def _withdraw(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        counts, value = self._counts.get(self._key(x)), inputs.unit_reward(reward)
        taken = (weight * value, weight * (1.0 - value))
        if counts is None or np.any(counts[index] - taken < -_ROUNDING * (1.0 + weight)):
            raise InputError(
                "cannot withdraw more than this key and action learned; nothing changed"
            )
        counts[index] = np.maximum(counts[index] - taken, 0.0)

    # -- state -----------------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        return {"prior": list(self.prior)}

    def _counters(self) -> dict[str, Any]:
        return {"keys": list(self._counts)}

    def _sums(self) -> Sums:
        stacked = np.zeros((len(self._counts), len(self.actions), 2))
        for row, counts in enumerate(self._counts.values()):
            stacked[row] = counts
        return {"counts": stacked}

    def _sum_shapes(self, meta: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        keys = meta.get("keys")
        if not isinstance(keys, list):
            raise StateError(f"the state's keys must be a list; got {type(keys).__name__}")
        texts = all(inputs.is_text(key) and len(key) <= _LONGEST_KEY for key in keys)
        if not texts or len(set(keys)) < len(keys):
            raise StateError(
                f"the state's keys must be different texts of at most {_LONGEST_KEY} characters"
            )
        return {"counts": (len(keys), len(self.actions), 2)}

    def _load(self, meta: dict[str, Any], sums: Sums) -> None:
        keys = meta["keys"]
        if (sums["counts"] < -_ROUNDING).any():
            raise StateError("the state has negative counts; use an older state")
        if (sums["counts"] > _LARGEST_COUNT).any():
            raise StateError(
                f"the state's 'counts' go beyond {_LARGEST_COUNT:g}; use an older state"
            )
        self._counts = {key: np.array(sums["counts"][i]) for i, key in enumerate(keys)}

    def _action_axes(self) -> dict[str, int]:
        return {"counts": 1}

    def _difference(
        self, meta: dict[str, Any], sums: Sums, base_meta: dict[str, Any], base: Sums
    ) -> Sums:
        difference = {name: array.copy() for name, array in sums.items()}
        difference["plays"] -= base["plays"]
        place = {key: i for i, key in enumerate(meta["keys"])}
        for row, key in enumerate(base_meta["keys"]):
            if key not in place:
                raise StateError(
                    f"the base state has the key {key!r}, but this policy does not; pass an "
                    "earlier state of this policy"
                )
            difference["counts"][place[key]] -= base["counts"][row]
        return difference

    def _sum(
        self, meta: dict[str, Any], sums: Sums, other_meta: dict[str, Any], other: Sums
    ) -> tuple[dict[str, Any], Sums]:
        keys = sorted({*meta["keys"], *other_meta["keys"]})
        place = {key: i for i, key in enumerate(keys)}
        counts = np.zeros((len(keys), len(self.actions), 2))
        for header, arrays in ((meta, sums), (other_meta, other)):
            for row, key in enumerate(header["keys"]):
                counts[place[key]] += arrays["counts"][row]
        return {**meta, "keys": keys}, {"plays": sums["plays"] + other["plays"], "counts": counts}
