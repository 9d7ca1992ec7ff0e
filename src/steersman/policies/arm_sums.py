"""Sufficient statistics of Gaussian linear models, one model per arm.

Each arm has float64 sums: the Gram matrix Σ w x xᵀ (packed upper triangle), the moment Σ w r x and
the count Σ w. Sums can be added, so deltas and merges are exact. Inverses cannot, so they are only
caches. With prior precision λ and noise variance v the posterior of arm a is

    L_a = λI + Gram_a / v,    θ_a = L_a⁻¹ Moment_a / v,    score mean θ_aᵀx, variance xᵀL_a⁻¹x.

Decisions read the K variances from working copies (`working_copies`). Large copies are float32, and
an arm with few rows stores only these rows. For a well-known arm, float32 loses too many digits by
cancellation, so its variance is computed in float64.

An update needs the Gram matrix only at the next exact factorisation, and loading it from memory
takes a third of the time. If the matrices do not fit into the cache, a few rows per arm wait and
are added when the matrix is read.

Forgetting multiplies an update of age t by forget^t. Only the decayed sum and its clock are stored:
forget^(T-t) factorises, so sums with different clocks add exactly, in any order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import blas

from steersman.errors import InputError
from steersman.policies.inverse_cache import WorkingCopies, inverse_of_upper, thin_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_CACHED = 1 << 16  # packed numbers; up to here float64 fits the cache and costs nothing
_FLOAT32_TRUST = 1e-2  # of the prior's variance; below, cancellation costs float32 over .1 %
LARGEST_GRAM = 1e100  # a million million rows of the largest norm and weight come to 1e33
LARGEST_MOMENT = 1e250  # leaves room for the smallest noise variance and prior precision
_HARD = 1e10  # times the prior's precision; beyond, rounding in an updated inverse shows
_LARGEST_SIZE = 1 << 27  # packed numbers, a gibibyte of float64 for each of three copies
_COUNT_ROUNDING = 1e-6  # of a weight: what a count may lack of what is taken back
_ROW_ROUNDING = 1e-3  # of the row taken back: far more than rounding, far less than a row
_TRACE_ROUNDING = 1e-9  # of what is known: rounding of a million rows
_MOST_WAITING = 8  # rows of one arm; its Gram matrix comes from memory once for all of them
_REFRESH_EVERY = 256  # rank-one updates of one arm between exact factorisations


class ArmSums:
    """Sums of K arms, with cached inverses and working copies.

    Args:
        arms: number of arms K >= 0.
        dim: number of features d >= 1.
        prior_precision: λ > 0.
        noise_var: v > 0.
        forget: factor in (0, 1] per tick of the clock.
    """

    def __init__(
        self, arms: int, dim: int, *, prior_precision: float, noise_var: float, forget: float
    ) -> None:
        self.dim = dim
        self.prior_precision = prior_precision
        self.noise_var = noise_var
        self.forget = forget
        self.clock = 0
        self.version = 0
        self.packed = size = dim * (dim + 1) // 2
        self.ensure_size(arms)
        self._upper = _packed_indices(dim)
        self._gram: Floats = np.zeros((arms, size))
        self._waiting: dict[int, list[tuple[Floats, float]]] = {}
        self.moment: Floats = np.zeros((arms, dim))
        self.count: Floats = np.zeros(arms)
        self._stamp = np.zeros(arms, dtype=np.int64)
        self._square: NDArray[np.intp] | None = None  # where each entry is packed
        self._diagonal = self._upper[0] == self._upper[1]
        self._doubling = np.where(self._diagonal, 1.0, 2.0)
        self._clear_caches()

    # -- deciding --------------------------------------------------------------------------------

    def means_and_variances(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the posterior mean (K,) and variance (K,) of every arm's score at ``x`` (d,)."""
        if self._any_stale:
            self._refresh_stale()
        if self._changed:
            self._copy_changed()
        variances = self._copies.variances(x)
        if self._copies.narrow and self._copies.has_dense:
            self._correct_small(variances, x)
        np.abs(variances, out=variances)  # below 0 by rounding alone
        return np.dot(self._theta, x), variances

    def means_and_variances_of_rows(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return means and variances (n, K) at ``rows`` (n, d)."""
        means, variances = np.empty((2, len(rows), len(self._theta)))
        self.fill(rows, means, variances)
        return means, variances

    def fill(self, rows: Floats, means: Floats, variances: Floats) -> None:
        """Write the means and variances of rows into the caller's arrays (n, K)."""
        if self._any_stale:
            self._refresh_stale()
        if self._changed:
            self._copy_changed()
        copies, theta = self._copies, self._theta
        copies.fill(rows, variances)
        for row, mean in zip(rows, means, strict=True):
            theta.dot(row, mean)
        if copies.narrow and copies.has_dense:
            for row, variance in zip(rows, variances, strict=True):
                self._correct_small(variance, row)
        np.abs(variances, out=variances)  # below 0 by rounding alone

    def _correct_small(self, variances: Floats, x: Floats) -> None:
        """Recompute small variances in float64, where float32 lost digits by cancellation."""
        dense = self._copies.dense_arms
        small = dense[variances[dense] < _FLOAT32_TRUST * (blas.ddot(x, x) / self.prior_precision)]
        if len(small) == 0:
            return
        outer: Floats = np.zeros(len(self._doubling))
        blas.dspr(self.dim, 1.0, x, outer, overwrite_ap=1)
        outer *= self._doubling
        # Gathering rows costs a copy, so with many of them all are read in place.
        if 4 * len(small) < len(variances):
            variances[small] = self._inverse[small] @ outer
        else:
            variances[small] = (self._inverse @ outer)[small]

    def means(self, x: Floats) -> Floats:
        """Return the posterior mean (K,) of every arm's score at ``x`` (d,)."""
        self._refresh_stale()
        means: Floats = np.dot(self._theta, x)
        return means

    @property
    def theta(self) -> Floats:
        """(K, d) posterior means of the weights."""
        self._refresh_stale()
        return self._theta

    @property
    def working_precision(self) -> float:
        """Relative rounding of the working copy: scores closer than this are ties."""
        return 1e-6 if self._copies.narrow else 1e-12

    def covariance(self, arm: int) -> Floats:
        """Return L_a⁻¹ as a full (d, d) matrix."""
        self._refresh_stale()
        if self._copies.is_thin(arm):
            rows = self._copies.rows_of(arm)
            known: Floats = np.eye(self.dim) / self.prior_precision - rows.T @ rows
            return known
        if self._square is None:
            square = np.empty((self.dim, self.dim), dtype=np.intp)
            square[self._upper] = square.T[self._upper] = np.arange(self.packed)
            self._square = square
        full: Floats = self._inverse[arm][self._square]  # one gather: a seventh of the time of two
        return full

    # -- learning --------------------------------------------------------------------------------

    def ensure_room(self, arm: int, x: Floats, change: float) -> None:
        """Raise InputError if adding ``change * x`` to the moment would leave the float64 range."""
        room = self._reach[arm] + abs(change) * math.sqrt(blas.ddot(x, x))
        if not room < LARGEST_MOMENT:
            raise InputError(
                "the sum of rewards times features would leave the float64 range; nothing was "
                "learned. Scale rewards to [0, 1] (or at least below 1e100) and try again."
            )

    def ensure_size(self, arms: int) -> None:
        """Raise InputError if the arms need more memory than a state may have."""
        if arms * self.packed > _LARGEST_SIZE:
            raise InputError(
                f"{arms} models of {self.dim} features need {arms * self.packed:,} numbers, more "
                f"than {_LARGEST_SIZE:,}; use fewer features, or a joint model of all actions"
            )

    def ensure_learned(self, arm: int, x: Floats, weight: float) -> None:
        """Raise InputError if arm ``arm`` cannot have learned the row ``x`` with that weight.

        Does not change anything. Tolerates rounding errors, also of withdrawn rows with a far
        larger norm.
        """
        if weight == 0.0:
            return
        self._add_waiting(arm)
        factor = float(self.forget ** (self.clock - int(self._stamp[arm])))
        known = self._gram[arm, self._diagonal] * factor
        taken = weight * np.square(x)
        left = self.count[arm] * factor - weight
        slack = _TRACE_ROUNDING * float(known.sum()) + _ROW_ROUNDING * float(taken.sum())
        if left < -_COUNT_ROUNDING * (1.0 + weight) or float((known - taken).min()) < -slack:
            raise InputError(
                "cannot withdraw more than this action learned; nothing changed. Pass the "
                "context, weight and bucket of the learned update."
            )

    def add(self, arm: int, x: Floats, reward: float, weight: float) -> None:
        """Add one row to arm ``arm``: O(d²). The caller has validated the values."""
        self._decay_arm(arm)
        self._add_to_gram(arm, x, weight)
        self._push(arm, x, weight * reward)
        self.count[arm] += weight
        self._learned[arm] = True
        if self._stale[arm]:
            return
        if self.forget < 1.0:
            self._mark_stale(arm)
            return
        self._pending[arm] += 1
        if self._pending[arm] >= _REFRESH_EVERY:
            self._mark_stale(arm)
            return
        self._downdate_inverse(arm, x, reward, weight / self.noise_var)

    def add_batch(self, arm: int, rows: Floats, rewards: Floats, weights: Floats) -> None:
        """Add many rows to one arm: rows (n, d), rewards (n,), weights (n,)."""
        weighted = rows * weights[:, None]
        self._decay_arm(arm)
        self._add_waiting(arm)
        self._gram[arm] += (weighted.T @ rows)[self._upper]
        self.moment[arm] += weighted.T @ rewards
        self._reach[arm] = float(np.abs(self.moment[arm]).max())
        self.count[arm] += weights.sum()
        self._learned[arm] = True
        self._mark_stale(arm)

    def revise(self, arm: int, x: Floats, change: float, weight: float) -> None:
        """Correct the reward of a row already added by ``change``; the Gram matrix stays."""
        self._decay_arm(arm)
        self._push(arm, x, weight * change)
        self._learned[arm] = True
        self._mark_stale(arm)

    def remove(self, arm: int, x: Floats, reward: float, weight: float) -> None:
        """Withdraw a row that was added with the same values, up to rounding."""
        self._decay_arm(arm)
        self._add_waiting(arm)
        blas.dspr(self.dim, -weight, x, self._gram[arm], overwrite_ap=1)
        self._gram[arm, self._diagonal] = np.maximum(self._gram[arm, self._diagonal], 0.0)
        self._push(arm, x, -weight * reward)
        self.count[arm] = max(0.0, self.count[arm] - weight)
        self._mark_stale(arm)

    def _add_to_gram(self, arm: int, x: Floats, weight: float) -> None:
        """Add a row to an arm's Gram matrix, at once or later."""
        if self._gram.size <= _CACHED:
            blas.dspr(self.dim, weight, x, self._gram[arm], overwrite_ap=1)
            return
        waiting = self._waiting.setdefault(arm, [])
        waiting.append((x.copy(), weight))
        if len(waiting) == _MOST_WAITING:
            self._add_waiting(arm)

    def _add_waiting(self, arm: int) -> None:
        """Add an arm's waiting rows to its Gram matrix, in the order in which they came."""
        for x, weight in self._waiting.pop(arm, ()):
            blas.dspr(self.dim, weight, x, self._gram[arm], overwrite_ap=1)

    def _push(self, arm: int, x: Floats, change: float) -> None:
        """Add ``change * x`` to the moment, and to the bound on its entries."""
        blas.daxpy(x, self.moment[arm], a=change)
        self._reach[arm] += abs(change) * math.sqrt(blas.ddot(x, x))

    def tick(self, to: int) -> None:
        """Move the clock forward to ``to``; every arm decays when it is next used."""
        self.clock = max(self.clock, to)
        if self.forget < 1.0:
            self._any_stale = True

    def settle(self) -> None:
        """Decay every arm to the current clock.

        With rare ticks (one bucket per day), sums in memory then equal those of `sums`, so a loaded
        state continues with the same bits.
        """
        for arm in np.flatnonzero(self._learned):
            self._decay_arm(int(arm))
        self._stamp[:] = self.clock  # who learned nothing has nothing to decay

    def age_weight(self, at: int) -> float:
        """Return forget^(clock - at), the current weight of an update at time ``at``."""
        return float(self.forget ** max(0, self.clock - at))

    # -- state -----------------------------------------------------------------------------------

    def sums(self) -> dict[str, Floats]:
        """Return copies of the sums, decayed to the clock."""
        for arm in list(self._waiting):
            self._add_waiting(arm)
        factors = self._factors()
        return {
            "gram": self._gram * factors[:, None],
            "moment": self.moment * factors[:, None],
            "count": self.count * factors,
        }

    def load(self, sums: dict[str, Floats], clock: int) -> None:
        """Replace the sums by copies of others of the same dim; InputError if that is too much."""
        self.ensure_size(len(sums["count"]))
        # Row by row in memory: BLAS adds to a row in place, and to a strided one not at all.
        self._waiting.clear()
        self._gram = np.array(sums["gram"], dtype=np.float64, order="C")
        self.moment = np.array(sums["moment"], dtype=np.float64, order="C")
        self.count = np.array(sums["count"], dtype=np.float64, order="C")
        self.clock = clock
        self._stamp = np.full(len(self.count), clock, dtype=np.int64)
        self._clear_caches()

    # -- caches ----------------------------------------------------------------------------------

    def _clear_caches(self) -> None:
        self.version += 1
        arms, size = self._gram.shape
        self._copies = WorkingCopies(
            arms,
            self.dim,
            prior_precision=self.prior_precision,
            doubling=self._doubling,
            narrow=arms * size > _CACHED,
        )
        self._inverse: Floats = np.zeros((arms, size))  # of dense arms
        if self._copies.most_rows == 0:
            self._inverse[:, self._diagonal] = 1.0 / self.prior_precision
        self._theta: Floats = np.zeros((arms, self.dim))
        self._pending = [0] * arms
        self._trace = [0.0] * arms  # of the Gram matrix over v, of thin arms
        self._changed: set[int] = set()
        self._reach: list[float] = np.abs(self.moment).max(axis=1, initial=0.0).tolist()
        self._learned = (self.count != 0.0) | self.moment.any(axis=1)
        self._derived_at = np.full(arms, self.clock, dtype=np.int64)
        self._stale = self._learned.copy()
        self._any_stale = bool(self._stale.any())

    def _mark_stale(self, arm: int) -> None:
        self.version += 1
        self._stale[arm] = True
        self._any_stale = True

    def _downdate_inverse(self, arm: int, x: Floats, reward: float, weight: float) -> None:
        """Sherman–Morrison: L⁻¹ ← L⁻¹ - v vᵀ w / (1 + w xᵀv), v = L⁻¹x, and θ with it."""
        self.version += 1
        copies, inverse = self._copies, self._inverse[arm]
        thin = copies.is_thin(arm)
        v = copies.times(arm, x) if thin else blas.dspmv(self.dim, 1.0, inverse, x)
        variance, length = blas.ddot(x, v), blas.ddot(x, x)
        prior = length / self.prior_precision
        if weight * prior > _HARD or variance * _HARD < prior:
            self._mark_stale(arm)  # the sums know better than an inverse that cancelled
            return
        shrink = weight / (1.0 + weight * variance)
        theta = self._theta[arm]
        blas.daxpy(v, theta, a=shrink * (reward - blas.ddot(theta, x)))
        if not thin:
            blas.dspr(self.dim, -shrink, v, inverse, overwrite_ap=1)
            self._changed.add(arm)
            return
        self._trace[arm] += weight * length
        if not (self._few_and_small(arm) and copies.lower(arm, v, shrink)):
            # It is dense from now on; or thin again, where many rows say few directions.
            self._mark_stale(arm)

    def _copy_changed(self) -> None:
        """Update the working copies of arms whose inverse changed."""
        for arm in self._changed:
            self._copies.renew(arm, self._inverse[arm])
        self._changed.clear()

    def _factors(self) -> Floats:
        """Return forget^age of every arm's sums, (K,)."""
        factors: Floats = np.power(self.forget, (self.clock - self._stamp).astype(np.float64))
        return factors

    def _decay_arm(self, arm: int) -> None:
        """Decay an arm's sums to the clock before an update.

        Decisions must not do this: their number would change the rounding, and the same log would
        not give the same bytes.
        """
        age = int(self.clock - self._stamp[arm])
        if age == 0:
            return
        self._stamp[arm] = self.clock
        if self.forget == 1.0:
            return
        factor = self.forget**age
        self._add_waiting(arm)
        self._gram[arm] *= factor
        self.moment[arm] *= factor
        self.count[arm] *= factor
        self._mark_stale(arm)

    def _refresh_stale(self) -> None:
        if not self._any_stale:
            return
        if self.forget < 1.0:
            self._stale |= (self._derived_at != self.clock) & self._learned
        for arm in np.flatnonzero(self._stale):
            self._refresh(int(arm))
        self._any_stale = False

    def _refresh(self, arm: int) -> None:
        """Recompute the caches of one arm by an exact factorisation."""
        self._add_waiting(arm)
        precision = np.zeros((self.dim, self.dim))
        scale = self.forget ** float(self.clock - self._stamp[arm]) / self.noise_var
        precision[self._upper] = self._gram[arm] * scale
        moment = self.moment[arm] * scale
        if self._thinned(arm, precision):
            self._theta[arm] = self._copies.times(arm, moment)
        else:
            precision[np.diag_indices(self.dim)] += self.prior_precision
            inverse, known = inverse_of_upper(precision, self.prior_precision)
            self._inverse[arm] = inverse[self._upper]
            # At once: what is learned next must not go on from the rows of before.
            self._copies.renew(arm, self._inverse[arm])
            self._changed.discard(arm)
            full = np.triu(known) + np.triu(known, 1).T
            self._theta[arm] = full @ moment
        self._pending[arm] = 0
        self._derived_at[arm] = self.clock
        self._stale[arm] = False

    def _few_and_small(self, arm: int) -> bool:
        """Return whether an arm's sums allow its working copy to be a few rows."""
        copies = self._copies
        known = self.count[arm] * self.forget ** float(self.clock - self._stamp[arm])
        return bool(known <= copies.most_rows and self._trace[arm] <= copies.largest_trace)

    def _thinned(self, arm: int, gram: Floats) -> bool:
        """Return whether the working copy of an arm is now the few rows of its Gram matrix."""
        if self._copies.most_rows == 0:
            return False
        self._trace[arm] = float(np.trace(gram))
        if not self._few_and_small(arm):
            return False
        rows = thin_rows(gram, self.prior_precision, self._copies.most_rows)
        if rows is None:
            return False
        self._copies.replace(arm, rows)
        self._changed.discard(arm)
        return True


def _packed_indices(dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    columns, rows = np.tril_indices(dim)
    return rows, columns
