"""Percentile intervals from resampled blocks of rows.

Resampling a million rows ten thousand times would draw 10^10 indexes. A sum over rows needs only
its sums over blocks: up to 2,000 blocks are resampled instead, as counts times block sums. The
spread of the mean of B blocks estimates that of n rows with relative error sqrt(2 / B), 3 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.ope.reward_models import Sums, fit, group_sums, passes_are_quicker
from steersman.stats import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from steersman.ope.logged_data import LoggedData
    from steersman.ope.rounds import Rounds

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Refit:
    """The direct method's value as a function of how often each block was drawn.

    Args:
        data: The log.
    """

    data: LoggedData

    @property
    def columns(self) -> int:
        """Sums that one block has to keep."""
        width = 1 if self.data.contexts is None else self.data.contexts.shape[1] + 1
        return int(self.data.target.shape[1]) * width * (width + 2) + 1

    def block_sums(self, blocks: NDArray[np.int64], count: int) -> Floats:
        """Return everything that the value needs of each block.

        Args:
            blocks: Block of each row, in [0, count), shape (n,).
            count: Number of blocks.

        Returns:
            Gram matrices, moments and target sums of all actions, and rows: (count, columns).
        """
        sums = group_sums(self.data, blocks, count)
        parts = [sums.gram.reshape(count, -1), sums.moment.reshape(count, -1)]
        rows = np.bincount(blocks, minlength=count).astype(np.float64)
        return np.column_stack([*parts, self._target_sums(blocks, count), rows])

    def values(self, totals: Floats) -> Floats:
        """Return the refitted value of each bootstrap sample.

        Args:
            totals: Summed block sums of each sample, shape (samples, columns).

        Returns:
            Values, shape (samples,).
        """
        actions = self.data.target.shape[1]
        width = 1 if self.data.contexts is None else self.data.contexts.shape[1] + 1
        cuts = np.cumsum([actions * width * width, actions * width, actions * width])
        gram, moment, target, rows = np.split(totals, cuts, axis=1)
        theta = fit(
            Sums(
                gram.reshape(-1, actions, width, width),
                moment.reshape(-1, actions, width),
            )
        )
        summed = (theta * target.reshape(theta.shape)).sum(axis=(1, 2))
        return np.asarray(summed / rows[:, 0])

    def _target_sums(self, blocks: NDArray[np.int64], count: int) -> Floats:
        """Return the sums of pi(a|x) (1, x) over each block: (count, K * width)."""
        target, features = self.data.target, np.ones((len(blocks), 1))
        if self.data.contexts is not None:
            features = np.column_stack([features, self.data.contexts])
        summed = np.empty((count, target.shape[1], features.shape[1]))
        if passes_are_quicker(summed[0].size, len(blocks), count):
            for at in np.ndindex(summed[0].shape):
                products = target[:, at[0]] * features[:, at[1]]
                summed[:, *at] = np.bincount(blocks, weights=products, minlength=count)
            return summed.reshape(count, -1)
        order = np.argsort(blocks, kind="stable")
        edges = np.searchsorted(blocks[order], np.arange(count + 1))
        target, features = target[order], features[order]
        for block in range(count):
            rows = slice(edges[block], edges[block + 1])
            summed[block] = target[rows].T @ features[rows]
        return summed.reshape(count, -1)


BLOCKS = 2000

# Numbers of block sums worth multiplying for each refitted sample: large models get fewer blocks,
# and beyond the second limit no interval.
_REFIT_WORK = 2**19
_FEWEST_REFIT_BLOCKS = 100
_REFIT_LIMIT = 2**24

# Bootstrap samples drawn at once, so that their counts stay in the cache.
_CHUNK = 64


@dataclass(frozen=True, eq=False)
class Blocks:
    """Which block each row is resampled with.

    Args:
        of_row: Block of each row, in [0, count), shape (n,).
        count: Number of blocks.
    """

    of_row: NDArray[np.int64]
    count: int

    def sums(self, *columns: Floats) -> Floats:
        """Return the sum of each column over each block: (count, columns)."""
        return np.column_stack(
            [np.bincount(self.of_row, weights=c, minlength=self.count) for c in columns]
        )


def make_blocks(data: LoggedData, most: int = BLOCKS) -> Blocks:
    """Return blocks of consecutive rows, or of whole units.

    Args:
        data: The log.
        most: Largest number of blocks.

    Returns:
        Blocks of (nearly) equally many rows, or of equally many units.
    """
    units = np.arange(len(data)) if data.units is None else data.units
    total = int(units.max()) + 1
    count = min(total, most)
    return Blocks(units * count // total, count)


def bootstrap(
    rounds: Mapping[str, Rounds],
    data: LoggedData,
    *,
    level: float,
    resamples: int,
    seed: int,
) -> dict[str, Interval]:
    """Return percentile intervals; numerator and denominator are resampled together.

    Assumes independent rows, or units where the log names them; serial dependence shorter than a
    block does no harm. A model's interval comes from refitting it on every sample: the deviations
    of the refitted values from the whole log's are added to the value.

    Args:
        rounds: The terms of each estimator.
        data: The log that they came from.
        level: Confidence level, in (0, 1).
        resamples: Bootstrap samples.
        seed: Of the blocks that are drawn: the same ones, whatever else is asked for.

    Returns:
        One interval for each estimator that has one: not for models that cannot be refitted.

    Source:
        Efron and Tibshirani (1993), An introduction to the bootstrap, chapter 13; for units, Field
        and Welsh (2007). Against resampling single rows: ``tests/ope/test_bootstrap.py``.
    """
    sampled = {name: terms for name, terms in rounds.items() if not terms.from_model}
    draws = _ratio_draws(sampled, make_blocks(data), resamples, np.random.default_rng([seed, 1]))
    for name, refit in _affordable_refits(rounds).items():
        few = max(_FEWEST_REFIT_BLOCKS, _REFIT_WORK // refit.columns)
        blocks = make_blocks(data, min(few, BLOCKS))
        rng = np.random.default_rng([seed, 2])
        draws[name] = rounds[name].value + _refit_deviations(refit, blocks, resamples, rng)
    tail = (1.0 - level) / 2.0
    return {
        name: Interval(*np.quantile(values, [tail, 1.0 - tail]).tolist())
        for name, values in draws.items()
    }


def _affordable_refits(rounds: Mapping[str, Rounds]) -> dict[str, Refit]:
    most = _REFIT_LIMIT // _FEWEST_REFIT_BLOCKS
    offered = ((name, terms.refit) for name, terms in rounds.items())
    return {name: refit for name, refit in offered if refit and refit.columns <= most}


def _ratio_draws(
    rounds: Mapping[str, Rounds], blocks: Blocks, resamples: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """Return the resampled values of every ratio, all from the same draws."""
    if not rounds:
        return {}
    pairs = [blocks.sums(terms.numerator, terms.denominator) for terms in rounds.values()]
    # Pair by pair: the last digits of a product can hang on how many columns are beside it.
    chunks = [[counts @ pair for pair in pairs] for counts in _counts(blocks.count, resamples, rng)]
    totals = np.concatenate(chunks, axis=1)  # (estimators, resamples, 2)
    return dict(zip(rounds, totals[..., 0] / totals[..., 1], strict=True))


def _refit_deviations(
    refit: Refit, blocks: Blocks, resamples: int, rng: np.random.Generator
) -> Floats:
    """Return the value refitted on each sample less that of the whole log."""
    sums = refit.block_sums(blocks.of_row, blocks.count)
    whole = refit.values(sums.sum(axis=0, keepdims=True))
    chunks = _counts(blocks.count, resamples, rng)
    return np.concatenate([refit.values(counts @ sums) for counts in chunks]) - whole


def _counts(blocks: int, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield how often each block was drawn, for a chunk of bootstrap samples at a time."""
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        drawn = rng.integers(0, blocks, size=(size, blocks), dtype=np.int32)
        drawn += np.arange(size, dtype=np.int32)[:, None] * np.int32(blocks)
        counts = np.bincount(drawn.ravel(), minlength=size * blocks)
        yield counts.reshape(size, blocks).astype(np.float64)
