"""Queries of an evaluation: stratified splits, rotating slices and a one-time holdout."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan
from typing import TYPE_CHECKING, Generic, TypeVar
from zlib import crc32

import numpy as np

from steersman.errors import InputError
from steersman.stats import minimum_detectable_effect, required_sample_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Places = NDArray[np.intp]
    Floats = NDArray[np.float64]

T = TypeVar("T")


@dataclass(frozen=True)
class Split:
    """Split into tuning queries and held-out queries.

    Args:
        tuning: Indexes of the tuning queries, ascending.
        held_out: Indexes of the held-out queries, ascending; disjoint from `tuning`.
    """

    tuning: Places
    held_out: Places


def stratified(
    categories: Sequence[str],
    rng: np.random.Generator,
    share: float = 0.5,
    *,
    groups: Sequence[str] = (),
) -> Split:
    """Return a split with equal shares of every category on both sides, up to rounding.

    Args:
        categories: (n,) category of each query, n ≥ 2.
        share: Share of held-out queries (or conversations), in (0, 1).
        groups: (n,) conversation of each query; "" for none, () without conversations. Turns stay
            on one side, in the category of the first turn.

    Returns:
            The split; both sides have queries.

    Raises:
        InputError: Fewer than two queries or conversations, or `share` is out of range.

    >>> split = stratified(["a", "a", "b", "b"], np.random.default_rng(0))
    >>> len(split.tuning), len(split.held_out)
    (2, 2)
    >>> stratified(list("aaaa"), np.random.default_rng(1), groups=["x", "x", "", "x"]).held_out
    array([2])
    """
    first, unit = units_of(groups or [""] * len(categories))
    if len(first) < 2 or not 0 < share < 1:
        raise InputError(_refusal(len(first), share))
    _labels, kinds = np.unique(np.asarray(categories)[first], return_inverse=True)
    # Sort by category, random within: then a stride takes an equal share of each.
    order = np.lexsort((rng.random(len(kinds)), kinds))
    marks = np.floor(np.arange(len(order) + 1) * share + rng.random())
    held = np.diff(marks) > 0
    if held.all() or not held.any():
        held[rng.integers(len(held))] ^= True
    out = np.zeros(len(first), bool)
    out[order[held]] = True
    return Split(np.flatnonzero(~out[unit]), np.flatnonzero(out[unit]))


def temporal(times: Sequence[float], share: float = 0.5, *, groups: Sequence[str] = ()) -> Split:
    """Return a split that holds out the latest queries.

    Args:
        share: Share of held-out queries (or conversations), in (0, 1).
        groups: (n,) conversation of each query; "" for none, () without conversations. The time of
            a conversation is that of its last turn.

    Returns:
            The split; both sides have queries. Ties are in the order of the input.

    Raises:
        InputError: Fewer than two queries or conversations, `share` is out of range, or a time is
            NaN.

    >>> temporal([3.0, 1.0, 2.0, 4.0]).held_out.tolist()
    [0, 3]
    >>> temporal([3.0, 1.0, 2.0, 4.0], groups=["x", "", "", "x"]).held_out.tolist()
    [0, 3]
    """
    first, unit = units_of(groups or [""] * len(times))
    if len(first) < 2 or not 0 < share < 1:
        raise InputError(_refusal(len(first), share))
    if not np.isfinite(np.asarray(times, float)).all():
        raise InputError("a query has no time; give every query a time, or split by something else")
    last = np.full(len(first), -np.inf)
    np.maximum.at(last, unit, np.asarray(times, float))
    order = np.argsort(last, kind="stable")
    cut = min(max(round(len(order) * (1 - share)), 1), len(order) - 1)
    late = np.zeros(len(first), bool)
    late[order[cut:]] = True
    return Split(np.flatnonzero(~late[unit]), np.flatnonzero(late[unit]))


def units_of(groups: Sequence[str]) -> tuple[Places, Places]:
    """Return the units: conversations, and single queries.

    Args:
        groups: (n,) conversation of each query; "" for none.

    >>> units_of(["", "x", "", "x"])
    (array([0, 1, 2]), array([0, 1, 2, 1]))
    """
    found: dict[object, int] = {}
    unit = [found.setdefault(one or place, len(found)) for place, one in enumerate(groups)]
    return np.unique(unit, return_index=True)[1], np.array(unit, np.intp)


def _refusal(units: int, share: float) -> str:
    wanted = "allowed: 2 or more, and a share above 0 to below 1"
    return f"{units} queries or conversations and a share of {share!r}; {wanted}"


def rotating(places: Places, size: int, rng: np.random.Generator) -> Iterator[Places]:
    """Yield slices forever: each query once per round, every round in a new order.

    Rotation prevents overfitting to a few fixed queries.

    Args:
        size: Number of queries per slice, 1 or more; all queries if there are fewer.

    Raises:
        InputError: No query, or `size` is below 1.

    >>> slices = rotating(np.arange(3), 2, np.random.default_rng(0))
    >>> len({int(one) for one in next(slices)} | {int(one) for one in next(slices)})
    3
    """
    if not len(places) or size < 1:
        message = f"{len(places)} queries, slices of {size!r}; allowed: 1 or more of each"
        raise InputError(message)
    size = min(size, len(places))
    left: list[int] = []
    while True:
        taken = left[:size]
        left = left[size:]
        if len(taken) < size:
            fresh = rng.permutation(places).tolist()
            # No query twice in one slice: repeats move to the next one.
            more = [one for one in fresh if one not in taken][: size - len(taken)]
            left = [one for one in fresh if one not in more]
            taken += more
        yield np.array(taken, np.intp)


class ConfigurationSlices(Generic[T]):
    """Rotating slices per configuration, over the queries on which it was evaluated.

    Args:
        known: Returns the queries of a configuration, ascending, one or more.
        size: Number of queries per slice, 1 or more; all queries if there are fewer.
        seed: Random seed of the orders.

    >>> slices = ConfigurationSlices(lambda configuration: np.arange(configuration), 2, [0])
    >>> len({int(one) for one in slices(3)} | {int(one) for one in slices(3)})
    3
    """

    def __init__(self, known: Callable[[T], Places], size: int, seed: Sequence[int]) -> None:
        self._known, self._size, self._seed = known, size, list(seed)
        self._of: dict[T, Iterator[Places]] = {}

    def __call__(self, configuration: T) -> Places:
        """Return the next slice of a configuration.

        Raises:
            InputError: No evaluations, or `size` is below 1.
        """
        if configuration not in self._of:
            # Seeded by name, so the order of requests does not matter.
            rng = np.random.default_rng([*self._seed, crc32(str(configuration).encode())])
            self._of[configuration] = rotating(self._known(configuration), self._size, rng)
        return next(self._of[configuration])


def enough(queries: int, sd: float, effect: float, *, power: float = 0.8) -> tuple[bool, float]:
    """Return whether a number of queries can show an effect, and the smallest one they can show.

    Args:
        queries: Number of pairs (a query under both configurations), 2 or more.
        sd: Standard deviation of the difference between the two on one query, > 0.
        effect: Effect to show, > 0.

    >>> within, least = enough(500, 0.25, 0.03)
    >>> within, round(least, 4)
    (False, 0.0314)
    """
    least = minimum_detectable_effect(queries, sd, power=power, paired=True)
    return least <= effect, least


@dataclass(frozen=True)
class PowerEstimate:
    """Power of the held-out queries, estimated before their use.

    Args:
        queries: Number of held-out queries.
        sd: Standard deviation of the difference in reward per query, from the tuning queries.
        effect: Gain to show.
        least: Smallest gain that they show with 80 % power.
        needed: Number of queries to show `effect`.
    """

    queries: int
    sd: float
    effect: float
    least: float
    needed: int

    @property
    def is_enough(self) -> bool:
        """Whether they can show `effect`."""
        return self.least <= self.effect

    def __str__(self) -> str:
        said = f"{self.queries} held-out queries show a gain of {self.least:.4f} or more"
        if self.is_enough:
            return f"{said}; {self.effect:g} is sought, so they are enough."
        return (
            f"{said}; {self.effect:g} is sought, so they are too few: it would take "
            f"{self.needed:,}, or a smaller gain may stay unseen."
        )


def spread_of(values: Floats, groups: Sequence[str] = ()) -> tuple[float, int]:
    """Return the standard deviation per query that matches the standard error of the mean.

    Turns of one conversation are similar, so their mean has a larger error than with as many
    independent queries.

    Args:
        values: (n,) defined, n ≥ 1.
        groups: (n,) conversation of each query; "" for none, () without conversations.

    >>> spread_of(np.array([0.0, 2.0])), spread_of(np.array([0.0, 2.0, 0.0, 2.0]), list("xyxy"))
    ((1.4142135623730951, 2), (2.0, 2))

    Source: Cochran, Sampling Techniques (1977), section 9A.2, for clusters of unequal size: the
    linearised ratio estimator.
    """
    apart, count = values - values.mean(), len(values)
    if any(groups):
        _, unit = units_of(groups)
        apart = np.bincount(unit, apart).astype(np.float64)
    units = len(apart)
    if units < 2:
        return nan, units
    return float(np.sqrt(units / (units - 1) * (apart**2).sum() / count)), units


def beforehand(
    differences: Sequence[Floats],
    queries: int,
    effect: float,
    *,
    groups: Sequence[Sequence[str]] = (),
) -> PowerEstimate:
    """Return the power of a number of held-out queries.

    Args:
        queries: Number of held-out queries, 2 or more.
        effect: Gain to show, > 0.

    Raises:
        InputError: A number is out of range, or all differences are missing.

    >>> halves = np.array([0.25, -0.25] * 50)
    >>> str(beforehand([halves], 500, 0.03))[:65]
    '500 held-out queries show a gain of 0.0315 or more; 0.03 is sough'
    """
    spreads = []
    for place, one in enumerate(differences):
        known = ~np.isnan(one)
        talks = [groups[place][row] for row in np.flatnonzero(known).tolist()] if groups else ()
        if known.any():
            spreads.append(spread_of(one[known], talks)[0])
    spreads = [one for one in spreads if not isnan(one)]
    sd = float(np.median(spreads)) if spreads else 0.0
    if not effect > 0 or queries < 2:
        message = f"effect {effect!r}, {queries} queries"
        raise InputError(f"{message}; allowed: above 0, and 2 or more")
    if not sd > 0:
        return PowerEstimate(queries, 0.0, effect, 0.0, 2)
    _, least = enough(queries, sd, effect)
    wanted = required_sample_size(effect, sd, power=0.8, paired=True)
    return PowerEstimate(queries, sd, effect, least, wanted)
