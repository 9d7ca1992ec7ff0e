"""Thompson sampling for mixed actions with a linear model of parts and pairs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import blas

from steersman.errors import InputError, StateError
from steersman.policies import inputs
from steersman.policies.factored_halves import halves_of
from steersman.policies.joint import root
from steersman.policies.linear import LinearPolicy
from steersman.policies.part_features import part_features
from steersman.policies.space import key_of, space_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.policies.states import Sums

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_MOST_WEIGHTS = 1_024
_MOST_WORK = 250_000_000  # multiplications after an update, of which others wait for the end
_MOST_KEPT = 64
_ROUNDING = 1e-9  # of a norm: what can be decided in must be short enough to learn from


class _Drawn(NamedTuple):
    """Posterior draws of a state."""

    version: int
    weights: Floats
    across: Floats
    mean_across: Floats


class FactoredTS(LinearPolicy):
    """Thompson sampling with a linear model of part effects and pair effects.

    Configurations share the effects of their values, so the policy can score a configuration that
    was never tried. Weight vectors are drawn from the posterior with a seed that depends on the
    number of updates. The share of draws in which a configuration is best, mixed with the floor, is
    its probability. So the propensity belongs to the whole configuration.

    Args:
        actions: () or the names of all configurations.
        parts: two or more values by part name; every combination is a configuration.
        scales: ``linear`` or ``log`` for numeric parts; near values have similar effects. Other
            parts are categorical.
        barred: values of some parts; configurations with all values of one entry are not allowed.
        dim: number of context features on which part effects depend. None: no context.
        prior_var: prior variance of a part effect, in [1e-9, 1e9], and at most 1e12 noise_var.
        pairs: whether to include pairwise interactions of parts.
        noise_var: noise variance of the reward, in [1e-9, 1e9].
        draws: M in [1, 1000]; the distribution has steps of 1/M.
        floor: total probability in [0, 1) that is spread evenly over the eligible configurations.
        forget: decay factor in (0, 1] of older updates, per time bucket (without buckets, per
            update).
        seed: seed of the posterior draws.

    Raises:
        InputError: argument out of range, actions that do not match the configurations, more than
            10,000 configurations, 1,024 weights, or 250 million multiplications per update: draws ×
            (weights² + `Halves.work`).

    >>> parts = {"k": [1, 2, 3, 4], "rerank": [False, True]}
    >>> policy = FactoredTS(parts=parts, scales={"k": "linear"}, noise_var=0.01)
    >>> for name in ('{"k":1,"rerank":true}', '{"k":4,"rerank":false}') * 20:
    ...     policy.learn(None, name, float("true" in name))
    >>> likely = policy.distribution(None, eligible=['{"k":2}'])
    >>> policy.actions[int(likely.argmax())]  # which was never tried
    '{"k":2,"rerank":true}'

    Source:
        Russo, Van Roy, Kazerouni, Osband, Wen (2018), "A Tutorial on Thompson Sampling", section 4,
        with the frequencies of seeded draws as the distribution.
    """

    algorithm = "factored_ts"
    action_kinds = frozenset({"mixed"})
    state_per_action = False

    def __init__(
        self,
        actions: Sequence[str] = (),
        *,
        parts: Mapping[str, Sequence[Any]],
        scales: Mapping[str, str] | None = None,
        barred: Sequence[Mapping[str, Any]] = (),
        dim: int | None = None,
        prior_var: float = 0.01,
        pairs: bool = True,
        noise_var: float = 0.1,
        draws: int = 64,
        floor: float = 0.0,
        forget: float = 1.0,
        seed: int = 0,
    ) -> None:
        key = key_of(parts, {} if scales is None else scales, barred)
        self.parts, self.scales, self.barred = json.loads(key)
        self.contextual = dim is not None
        self.reads = "vector" if self.contextual else "nothing"
        self.context_dim = 1 if dim is None else inputs.whole("dim", dim, 1, inputs.MOST_FEATURES)
        self.prior_var, self.noise_var = inputs.variances(prior_var, noise_var)
        self.pairs = inputs.truth("pairs", pairs)
        self.draws = inputs.whole("draws", draws, 1, 1_000)
        self.seed = inputs.whole("seed", seed, 0, 2**63)
        self._rows, self._alone = part_features(key, self.pairs, self.prior_var)
        self._longest = self._longest_contexts()
        self._longest_of_all = float(self._longest.min()) * (1.0 - _ROUNDING)
        names = space_of(key).names
        if actions and tuple(actions) != names:
            raise InputError(
                f"actions do not match the {len(names):,} configurations of these parts; omit them"
            )
        super().__init__(
            names,
            self._weights_wanted(dim),
            prior_precision=1.0,
            noise_var=self.noise_var,
            floor=floor,
            forget=forget,
        )
        self._halves = halves_of(key, self.pairs, self.prior_var)
        self._check_work()
        self._drawn: _Drawn | None = None
        self._kept: dict[tuple[bytes, bytes], tuple[Floats, Floats]] = {}

    def _weights_wanted(self, dim: int | None) -> int:
        found: int = self._rows.shape[1] + (dim or 0) * self._alone
        if found > _MOST_WEIGHTS:
            raise InputError(
                f"too many weights: {found:,} ({self._rows.shape[1]} features and "
                f"{self._alone} times {dim} context numbers); allowed: up to "
                f"{_MOST_WEIGHTS:,}. Declare a smaller context.dim, fewer categorical values, "
                "or contextual: false"
            )
        return found

    def _longest_contexts(self) -> Floats:
        """Return (K,) the largest context norms within the limits of learning."""
        alone = self._rows[:, 1 : 1 + self._alone]
        room = inputs.LARGEST_NORM**2 - np.einsum("ij,ij->i", self._rows, self._rows)
        found: Floats = np.sqrt(np.maximum(room, 0.0) / np.einsum("ij,ij->i", alone, alone))
        return found

    def _seen(self, x: Any, longest: float) -> Floats:
        """Return a context; InputError if it is longer than can be learned from."""
        seen = inputs.vector(x, self.context_dim)
        norm = math.sqrt(blas.ddot(seen, seen))
        if norm <= longest:
            return seen
        worst = int(np.abs(seen).argmax())
        raise InputError(
            f"the context is too large: x[{worst}] is {seen[worst]:g}, its norm {norm:g}; with a "
            f"prior_var of {self.prior_var:g} it may be at most {longest:g}. Declare a scale "
            "(zscore or robust) for this number"
        )

    def _check_work(self) -> None:
        """Refuse models whose posterior draws take too long."""
        work = (self.dim**2 + self._halves.work) * self.draws
        if work > _MOST_WORK:
            raise InputError(
                f"{self.draws} draws of {self.dim:,} weights for {len(self._rows):,} "
                f"configurations take {work:,} multiplications after an update; allowed: "
                f"{_MOST_WORK:,}: declare fewer draws, fewer values, or pairs: false"
            )

    # -- deciding --------------------------------------------------------------------------------

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        self._no_features(features)
        seen = self._seen(x, self._longest_of_all) if self.contextual else np.zeros(0)
        drawn = self._draws_now()
        key = seen.tobytes(), b"" if mask is None else mask.tobytes()
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            mean = self._of_configurations(seen, self._arms.theta[0][:, None])
            scores = self._halves.worth(drawn.mean_across, mean)[0]
            weights = self._of_configurations(seen, drawn.weights)
            shares = self._halves.shares(drawn.across, weights, mask)
            self._kept[key] = scores, shares / self.draws
        scores, distribution = self._kept[key]
        return scores.copy(), distribution.copy()

    def _of_configurations(self, x: Floats, weights: Floats) -> Floats:
        """Return (P, M) the weights of a configuration's features in a context."""
        count = self._rows.shape[1]
        if not len(x):
            return weights[:count]
        found = weights[:count].copy()
        inner = weights[count:].reshape(len(x), self._alone, -1)
        found[1 : 1 + self._alone] += np.tensordot(x, inner, axes=1)
        return found

    def _draws_now(self) -> _Drawn:
        """Return the posterior draws of the current state, with their context-free part."""
        version, theta = self._arms.version, self._arms.theta[0]
        if self._drawn is None or self._drawn.version != version:
            rng = np.random.default_rng([self.seed, self.updates])
            standard = rng.standard_normal((self.dim, self.draws))
            weights = theta[:, None] + root(self._arms.covariance(0)) @ standard
            count = self._rows.shape[1]
            self._drawn = _Drawn(
                version,
                weights,
                self._halves.across(weights[:count]),
                self._halves.across(theta[:count, None]),
            )
            self._kept.clear()
        return self._drawn

    # -- learning: what is summed is a row of the configuration, in its context -------------------

    def _row(self, x: Any, index: int) -> Floats:
        row: Floats = self._rows[index]
        if not self.contextual:
            return row
        seen = self._seen(x, float(self._longest[index]))
        return np.concatenate([row, np.outer(seen, row[1 : 1 + self._alone]).ravel()])

    def _learn(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        super()._learn(self._row(x, index), index, reward, weight, bucket)

    def _learn_batch(
        self,
        rows: Any,
        indexes: NDArray[np.intp],
        rewards: Any,
        weights: Floats,
        buckets: Sequence[int] | None,
    ) -> None:
        pairs = list(zip(rows, indexes.tolist(), strict=True))
        made = inputs.each(lambda pair: self._row(*pair), pairs)
        super()._learn_batch(np.array(made), indexes, rewards, weights, buckets)

    def _revise(self, x: Any, index: int, change: float, weight: float, bucket: int | None) -> None:
        super()._revise(self._row(x, index), index, change, weight, bucket)

    def _withdraw(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        super()._withdraw(self._row(x, index), index, reward, weight, bucket)

    def add_action(self, name: str, *, explore: int = 0, share: float = 0.05) -> None:
        """Refuse: parts define the configurations.

        Args:
            name: unused.
            explore: unused.
            share: unused.

        Raises:
            InputError: always.
        """
        raise InputError(f"cannot add {name!r:.200}: declare other parts or values instead")

    def remove_action(self, name: str) -> None:
        """Refuse: parts define the configurations.

        Args:
            name: unused.

        Raises:
            InputError: always.
        """
        raise InputError(f"cannot remove {name!r:.200}: bar it in the declaration of the parts")

    # -- state -----------------------------------------------------------------------------------

    def _meta(self) -> dict[str, Any]:
        meta = super()._meta()
        # The parts say them all in a hundredth of the room.
        return {**meta, "config": {**meta["config"], "actions": []}}

    def _config(self) -> dict[str, Any]:
        return {
            "parts": self.parts,
            "scales": self.scales,
            "barred": self.barred,
            "dim": self.context_dim if self.contextual else None,
            "prior_var": self.prior_var,
            "pairs": self.pairs,
            "noise_var": self.noise_var,
            "draws": self.draws,
            "forget": self.forget,
            "seed": self.seed,
        }

    @classmethod
    def _check_size(cls, config: dict[str, Any], sums: Sums) -> None:
        """Refuse a header whose parts make more than the arrays have, before memory is taken."""
        plays, gram = sums.get("plays", np.zeros(0)), sums.get("gram", np.zeros(0))
        try:
            key = key_of(config["parts"], config["scales"], config["barred"])
            fits = plays.shape == (len(space_of(key).names),)
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(
                f"the state has no valid parts of mixed actions: {error!r:.200}"
            ) from error
        dim = config.get("dim")
        small = dim is None or (isinstance(dim, int) and gram.size >= dim * (dim + 1) // 2)
        if not fits or not small:
            raise StateError(
                "the state's 'plays' or 'gram' do not fit its parts; use an older state"
            )
