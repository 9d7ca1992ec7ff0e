"""Reward models for the direct method and the doubly robust estimator.

One linear model per action, q(x, a) = theta_a . (1, x): without contexts it is the action's mean.
What a model needs of its rows are sums, so that leaving a fold out, following a log through time
and refitting a bootstrap sample are all additions of sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from steersman.ope.logged_data import LoggedData

    Floats = NDArray[np.float64]
    Rows = slice | NDArray[np.intp]

FOLDS = 5

# Pull of every coefficient towards the mean of all rewards, in rows; means need none.
_RIDGE = 1.0

# Pull over the trace of the Gram matrix below which the matrix may be singular in float64.
_LEAST_PULL = 1e-13

# Numbers that a log's batches may take at a time while it is followed: 32 MB.
_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class Predictions:
    """Out-of-sample predictions of a reward model.

    Args:
        chosen: Predicted reward of the logged action, shape (n,).
        expected: Predicted reward of the target policy, shape (n,).
    """

    chosen: Floats
    expected: Floats


@dataclass(frozen=True, eq=False)
class Sums:
    """Sufficient statistics of one linear model per action; any leading axes.

    Args:
        gram: Sums of z zᵀ with z = (1, x), shape (..., K, d + 1, d + 1).
        moment: Sums of z r, shape (..., K, d + 1).
    """

    gram: Floats
    moment: Floats

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.gram - other.gram, self.moment - other.moment)


def group_sums(
    data: LoggedData, groups: NDArray[np.int64], count: int, rows: slice = slice(None)
) -> Sums:
    """Return the sums of each group of rows and each action.

    Args:
        data: The log.
        groups: Group of each row, in [0, count), shape (n,).
        count: Number of groups.
        rows: Those that are grouped; all of the log unless given.

    Returns:
        Sums with one leading axis of size ``count``.
    """
    actions, rewards = data.target.shape[1], data.rewards[rows]
    cells = groups * actions + data.actions[rows]
    if data.contexts is None:
        size = count * actions
        counts = np.bincount(cells, minlength=size).astype(np.float64)
        totals = np.bincount(cells, weights=rewards, minlength=size).astype(np.float64)
        shape = (count, actions, 1)
        return Sums(counts.reshape(*shape, 1), totals.reshape(shape))
    return _linear_sums(data.contexts[rows], rewards, cells, (count, actions))


def fit(sums: Sums) -> Floats:
    """Return the coefficients of every model.

    An action without rows gets the mean reward of all rows, and 0 where there are none at all.

    Args:
        sums: With any leading axes.

    Returns:
        Coefficients, shape (..., K, d + 1).
    """
    counts, totals = sums.gram[..., 0, 0], sums.moment[..., 0]
    base = totals.sum(axis=-1) / np.maximum(counts.sum(axis=-1), 1.0)
    centred = sums.moment - base[..., None, None] * sums.gram[..., 0]
    if sums.moment.shape[-1] == 1:
        theta = centred / np.maximum(counts, 1.0)[..., None]
    else:
        # Contexts of 1e6 leave no digit of the pull: then the least that keeps it solvable.
        pull = np.maximum(_RIDGE, _LEAST_PULL * np.trace(sums.gram, axis1=-2, axis2=-1))
        ridge = pull[..., None, None] * np.eye(sums.moment.shape[-1])
        theta = np.linalg.solve(sums.gram + ridge, centred[..., None])[..., 0]
    theta[..., 0] += base[..., None]
    return np.asarray(theta)


def external(data: LoggedData, q_hat: Floats) -> Predictions:
    """Return the predictions of a model that was trained elsewhere.

    Args:
        data: The log.
        q_hat: Its predictions for every action, shape (n, K).

    Returns:
        Predictions for every row.
    """
    chosen = np.take_along_axis(q_hat, data.actions[:, None], axis=1)[:, 0]
    return Predictions(chosen, np.einsum("ij,ij->i", data.target, q_hat))


def cross_fitted(data: LoggedData, rng: np.random.Generator) -> Predictions:
    """Return out-of-fold predictions for a log whose rows (or units) are independent.

    Args:
        data: The log; units are never split between folds.
        rng: Deals the units into folds.

    Returns:
        Predictions for every row from models fitted on the other folds.
    """
    units = np.arange(len(data)) if data.units is None else data.units
    count = int(units.max()) + 1
    folds = (rng.permutation(count) % FOLDS)[units]
    parts = group_sums(data, folds, FOLDS)
    theta = fit(Sums(parts.gram.sum(axis=0), parts.moment.sum(axis=0)) - parts)
    blank = Predictions(np.empty(len(data)), np.empty(len(data)))
    for fold in range(FOLDS):
        _predict(data, theta[fold], np.flatnonzero(folds == fold), blank)
    return blank


def past_only(data: LoggedData) -> Predictions:
    """Return predictions from earlier rows alone, for a log whose policy learned as it ran.

    Args:
        data: The log in its order.

    Returns:
        Predictions for every row from models fitted before its batch began; 0 in the first batch.
    """
    actions, width = data.target.shape[1], 1
    if data.contexts is not None:
        width += data.contexts.shape[1]
    known = Sums(np.zeros((actions, width, width)), np.zeros((actions, width)))
    at_once = max(1, _AT_ONCE // (known.gram.size + known.moment.size))
    blank = Predictions(np.empty(len(data)), np.empty(len(data)))
    batches = list(time_batches(len(data)))
    for start in range(0, len(batches), at_once):
        some = batches[start : start + at_once]
        before, known = _before_each(data, some, known)
        for theta, rows in zip(fit(before), some, strict=True):
            _predict(data, theta, rows, blank)
    return blank


def _before_each(data: LoggedData, batches: Sequence[slice], known: Sums) -> tuple[Sums, Sums]:
    """Return the sums of all rows before each of some consecutive batches, and those after them."""
    rows = slice(batches[0].start, batches[-1].stop)
    lengths = [batch.stop - batch.start for batch in batches]
    parts = group_sums(data, np.repeat(np.arange(len(batches)), lengths), len(batches), rows)
    gram = np.concatenate([known.gram[None], parts.gram]).cumsum(axis=0)
    moment = np.concatenate([known.moment[None], parts.moment]).cumsum(axis=0)
    return Sums(gram[:-1], moment[:-1]), Sums(gram[-1], moment[-1])


def time_batches(rows: int) -> Iterator[slice]:
    """Yield consecutive batches of a log, small at first and never above a fiftieth of it.

    Args:
        rows: Length of the log.

    Yields:
        Slices that cover the log in order.

    Example:
        >>> [batch.stop for batch in time_batches(40)]
        [10, 12, 14, 16, 19, 22, 26, 31, 37, 40]
    """
    start, stop = 0, min(10, rows)
    while start < rows:
        yield slice(start, stop)
        start, stop = stop, min(rows, stop + min(stop // 5, max(10, rows // 50)))


def _predict(data: LoggedData, theta: Floats, rows: Rows, into: Predictions) -> None:
    """Write the predictions of one set of models for some rows."""
    actions, target = data.actions[rows], data.target[rows]
    if data.contexts is None:
        into.chosen[rows] = theta[actions, 0]
        into.expected[rows] = target @ theta[:, 0]
        return
    scores = data.contexts[rows] @ theta[:, 1:].T + theta[:, 0]
    into.chosen[rows] = scores[np.arange(len(actions)), actions]
    into.expected[rows] = np.einsum("ij,ij->i", target, scores)


def passes_are_quicker(pairs: int, rows: int, cells: int) -> bool:
    """Whether sums of products over cells take less time pair by pair than cell by cell.

    Args:
        pairs: Of columns that are multiplied.
        rows: Of all cells.
        cells: That have rows.
    """
    # What a product takes to begin, beside one pair for one row, as measured.
    return pairs * (rows + 1_500) < 3_000 * cells


def _linear_sums(
    contexts: Floats, rewards: Floats, cells: NDArray[np.int64], shape: tuple[int, int]
) -> Sums:
    """Return the sums of each cell (group, action).

    By one matrix product for each cell with rows, or, if these are many and small, by one pass over
    all rows for each pair of columns.
    """
    width = contexts.shape[1] + 1
    gram = np.zeros((shape[0] * shape[1], width, width))
    moment = np.zeros((shape[0] * shape[1], width))
    order = np.argsort(cells, kind="stable")
    edges = np.searchsorted(cells[order], np.arange(gram.shape[0] + 1))
    z = np.column_stack([np.ones(len(order)), contexts[order]])
    r = rewards[order]
    there = np.flatnonzero(np.diff(edges))
    if passes_are_quicker(width * (width + 1) // 2, len(r), len(there)):
        columns, starts = np.ascontiguousarray(z.T), edges[there]
        for i, column in enumerate(columns):
            moment[there, i] = np.add.reduceat(column * r, starts)
            for j in range(i, width):
                gram[there, i, j] = np.add.reduceat(column * columns[j], starts)
                gram[there, j, i] = gram[there, i, j]
    else:
        for cell in there:
            rows = slice(edges[cell], edges[cell + 1])
            gram[cell] = z[rows].T @ z[rows]
            moment[cell] = z[rows].T @ r[rows]
    return Sums(gram.reshape(*shape, width, width), moment.reshape(*shape, width))
