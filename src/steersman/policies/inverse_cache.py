"""Copies of the inverses of K arms, made for reading: all variances of a context at once.

All K variances are one matrix-vector product: xᵀBx = Σ_i B_ii x_i² + Σ_{i<j} (2 B_ij) x_i x_j, so a
row of packed B (off-diagonals doubled) meets the packed outer product of x. Moving those
K·d(d+1)/2 numbers through memory is what a decision costs, so where they leave the cache they are
float32.

An arm that has seen few rows is known in few directions, and the copy says just that:

    L⁻¹ = I/λ - Σ_i w_i w_iᵀ,    xᵀL⁻¹x = xᵀx/λ - Σ_i (w_iᵀx)²,

with one w a row that was learned from (Sherman-Morrison). That reads r·d numbers, not d²/2: of
a thousand tools most are asked for seldom. Contexts that come again and again say few directions:
whenever an arm has twice as many rows as it had directions, they are put together. All these rows
are float64, so nothing cancels, and two copies of one state agree however they came about. For the
same reason what was learned says whether an arm is thin, not how: its weights sum to d/6 at most,
and no more directions are known.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import blas, lapack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LEFT_OUT = 1e-9  # of the prior's precision: what thin rows may miss
_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of a trace: what is left of nothing


def inverse_of_upper(precision: Floats, smallest: float) -> tuple[Floats, Floats]:
    """Return the inverse of a symmetric matrix given by its upper triangle, and of its known part.

    Upper triangles are valid. Eigenvalues are at least ``smallest`` by construction. Where rounding
    is larger than that (nearly collinear features with huge norms), eigenvalues that are only
    rounding noise, on either side of zero, become ``smallest`` again: such directions count as
    unexplored. The known part leaves them out, since what the moment holds of them is noise too.
    """
    noise = len(precision) * np.finfo(np.float64).eps * float(np.trace(precision))
    factor, failed = lapack.dpotrf(precision, lower=0, overwrite_a=0)
    if not failed and float(np.diagonal(factor).min()) ** 2 > noise:
        inverse, failed = lapack.dpotri(factor, lower=0)
        if not failed and np.isfinite(inverse).all():
            return inverse, inverse
    values, vectors = np.linalg.eigh(precision, UPLO="U")
    kept = values > noise
    shares = 1.0 / np.where(kept, values, smallest)
    return (vectors * shares) @ vectors.T, (vectors * (shares * kept)) @ vectors.T


def thin_rows(gram: Floats, prior_precision: float, most: int) -> Floats | None:
    """Return the rows W with (λI + G)⁻¹ = I/λ - WᵀW of a Gram matrix of low rank.

    Args:
        gram: (d, d), its upper triangle is looked at.
        prior_precision: λ > 0.
        most: rows that are allowed.

    Returns:
        (r, d) rows; None: the rank is larger, or rounding of so large entries hides it.

    Source: pivoted Cholesky G = RᵀR (LAPACK dpstrf), and Woodbury's identity:
    (λI + RᵀR)⁻¹ = I/λ - Rᵀ(λ(λI + RRᵀ))⁻¹R.
    """
    dim = len(gram)
    least = _least(dim, prior_precision)
    if float(np.trace(gram)) > largest_trace(dim, prior_precision):
        return None
    factor, pivots, rank, failed = lapack.dpstrf(gram, tol=least, lower=0)
    if failed < 0 or rank > most:
        return None
    rows = np.zeros((rank, dim))
    rows[:, pivots - 1] = np.triu(factor[:rank])
    inner = prior_precision * (prior_precision * np.eye(rank) + rows @ rows.T)
    lower, failed = lapack.dpotrf(inner, lower=1)
    if failed:
        return None
    found: Floats = blas.dtrsm(1.0, lower, rows, lower=1)
    return found


def largest_trace(dim: int, prior_precision: float) -> float:
    """Return the trace up to which rounding hides nothing of the rank of a Gram matrix."""
    return _least(dim, prior_precision) / _ROUNDING


def _least(dim: int, prior_precision: float) -> float:
    """Return the pivot below which nothing is left of a Gram matrix that would show."""
    return _LEFT_OUT * prior_precision / dim


_PUT_TOGETHER_AT = 8  # rows, at least
_NOTHING = 1e-12  # of the prior's variance: below this remainder, a direction counts as dependent
_COPIED = 512  # features, at most, of which zeros are copied in less time than they are set
_MOST_ROWS = 6  # an arm is thin up to dim / this; its rows then cost two thirds of the triangle


@lru_cache(maxsize=8)
def _zeros(count: int, kind: type) -> NDArray[Any]:
    """Return zeros that are only read: many policies of one size share them, and their caches."""
    zeros: NDArray[Any] = np.zeros(count, dtype=kind)
    zeros.flags.writeable = False
    return zeros


class WorkingCopies:
    """What decides, in place of the float64 inverses: dense triangles, and rows of thin arms.

    Args:
        arms: number of arms K ≥ 0, all of which know nothing yet.
        dim: number of features d ≥ 1.
        prior_precision: λ > 0.
        doubling: (P,) 1 for the diagonal of a packed triangle, 2 elsewhere.
        narrow: whether dense copies are float32 and arms begin thin; else all are dense float64.
    """

    def __init__(
        self, arms: int, dim: int, *, prior_precision: float, doubling: Floats, narrow: bool
    ) -> None:
        self.narrow = narrow
        self.most_rows = dim // _MOST_ROWS if narrow else 0
        self.largest_trace = largest_trace(dim, prior_precision)
        self._arms, self._dim, self._prior_precision = arms, dim, prior_precision
        self._doubling = doubling
        kind = np.float32 if narrow else np.float64
        size = len(doubling)
        self._outer: NDArray[Any]
        self._outer = _zeros(size, kind) if dim <= _COPIED else np.zeros(size, dtype=kind)
        self._rank_one = blas.sspr if narrow else blas.dspr
        # Not touched before an arm is dense: until then the system gives no memory for its row.
        self._dense: NDArray[Any] = np.empty((arms, len(doubling)), dtype=kind)
        self._arm_at: NDArray[np.intp] = np.arange(arms)
        self._slots = 0
        self._slot_of = [-1] * arms
        self._rows: Floats = np.empty((0, dim))
        self._owner: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self._count = 0
        self._places: dict[int, list[int]] = {}
        self._put_together_at: dict[int, int] = {}
        if self.most_rows == 0:
            nothing = np.where(doubling == 1.0, 1.0 / prior_precision, 0.0)
            for arm in range(arms):
                self.renew(arm, nothing)

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the BLAS routine, which nothing can copy."""
        return {name: value for name, value in vars(self).items() if name != "_rank_one"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._rank_one = blas.sspr if self.narrow else blas.dspr

    def variances(self, x: Floats, out: Floats | None = None) -> Floats:
        """Return the variance of every arm at ``x`` (d,), in ``out`` (K,) if there is one."""
        if not self.narrow:
            found: Floats = self._dense.dot(self._outer_of(x), out)
            return found
        if out is None:
            out = np.empty(self._arms)
        if self._slots < self._arms:
            out.fill(blas.ddot(x, x) / self._prior_precision)
        if self._count:
            along = self._rows[: self._count] @ x
            along *= along
            out -= np.bincount(self._owner[: self._count], along, self._arms)
        if self._slots:
            dense = np.dot(self._dense[: self._slots], self._outer_of(x))
            out[self._arm_at[: self._slots]] = dense
        return out

    def fill(self, rows: Floats, out: Floats) -> None:
        """Write the variances at ``rows`` (n, d) into ``out`` (n, K): `variances` of each row."""
        if self.narrow:
            for row, variance in zip(rows, out, strict=True):
                self.variances(row, variance)
            return
        dense, outer_of = self._dense, self._outer_of
        for row, variance in zip(rows, out, strict=True):
            dense.dot(outer_of(row), variance)

    def _outer_of(self, x: Floats) -> NDArray[Any]:
        if self._dim <= _COPIED:
            # The zeros are copied by the routine itself, in one call.
            copied: NDArray[Any] = self._rank_one(self._dim, 1.0, x, self._outer)
            return copied
        self._outer.fill(0.0)
        self._rank_one(self._dim, 1.0, x, self._outer, overwrite_ap=1)
        return self._outer

    def is_thin(self, arm: int) -> bool:
        """Return whether an arm is kept as rows."""
        return self._slot_of[arm] < 0

    @property
    def has_dense(self) -> bool:
        """Whether an arm is kept as a triangle."""
        return self._slots > 0

    @property
    def dense_arms(self) -> NDArray[np.intp]:
        """The arms that are kept as triangles, in no order."""
        return self._arm_at[: self._slots]

    def renew(self, arm: int, inverse: Floats) -> None:
        """Copy an arm's packed inverse (P,); it is dense from now on."""
        slot = self._slot_of[arm]
        if slot < 0:
            self._drop(arm)
            slot = self._slot_of[arm] = self._slots
            self._arm_at[slot] = arm
            self._slots += 1
        np.multiply(inverse, self._doubling, out=self._dense[slot], casting="same_kind")

    def lower(self, arm: int, v: Floats, share: float) -> bool:
        """Take ``share`` v vᵀ from the inverse of a thin arm; ``v`` (d,) is used up.

        Returns:
            False: it has as many rows as it may.
        """
        places = self._places.setdefault(arm, [])
        if len(places) >= self.most_rows:
            return False
        v *= math.sqrt(share)
        self._append(arm, places, v)
        if len(places) >= self._put_together_at.get(arm, _PUT_TOGETHER_AT):
            self._put_together(arm)
        return True

    def rows_of(self, arm: int) -> Floats:
        """Return the rows (r, d) of a thin arm."""
        found: Floats = self._rows[self._places.get(arm, [])]
        return found

    def times(self, arm: int, x: Floats) -> Floats:
        """Return L⁻¹x (d,) of a thin arm: O(r d)."""
        rows = self.rows_of(arm)
        found: Floats = x / self._prior_precision
        if len(rows):
            found -= (rows @ x) @ rows
        return found

    def replace(self, arm: int, rows: Floats) -> None:
        """Keep an arm as these rows (r, d), r at most `most_rows`."""
        self._drop(arm)
        self._free(arm)
        places = self._places.setdefault(arm, [])
        for row in rows:
            self._append(arm, places, row)
        self._put_together_at[arm] = max(_PUT_TOGETHER_AT, 2 * len(rows))

    def _put_together(self, arm: int) -> None:
        """Keep an arm as one row for each direction that its rows (r, d) say: O(r² d)."""
        rows = self.rows_of(arm)
        shares, mixes = np.linalg.eigh(rows @ rows.T)
        kept = shares > _NOTHING / self._prior_precision
        if kept.all():
            self._put_together_at[arm] = 2 * len(rows)
        else:
            self.replace(arm, mixes[:, kept].T @ rows)

    def _append(self, arm: int, places: list[int], row: Floats) -> None:
        place = self._count
        if place == len(self._rows):
            room = max(64, 2 * place)
            rows, owner = self._rows, self._owner
            self._rows = np.empty((room, self._dim))
            self._owner = np.empty(room, dtype=np.intp)
            self._rows[:place], self._owner[:place] = rows, owner
        self._rows[place] = row
        self._owner[place] = arm
        places.append(place)
        self._count += 1

    def _free(self, arm: int) -> None:
        """Give up an arm's triangle, if it has one; the last triangle fills its place."""
        slot = self._slot_of[arm]
        if slot < 0:
            return
        self._slots -= 1
        self._slot_of[arm] = -1
        if slot < self._slots:
            other = int(self._arm_at[self._slots])
            self._dense[slot], self._arm_at[slot] = self._dense[self._slots], other
            self._slot_of[other] = slot

    def _drop(self, arm: int) -> None:
        """Take an arm's rows away; the last rows fill their places."""
        for place in sorted(self._places.pop(arm, ()), reverse=True):
            self._count -= 1
            if place < self._count:
                other = int(self._owner[self._count])
                self._rows[place], self._owner[place] = self._rows[self._count], other
                theirs = self._places[other]
                theirs[theirs.index(self._count)] = place
