"""Synthetic collections for training a tuning policy when few real ones are recorded.

No reported figure uses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman_systems.rag_tuner.recorded import Recorded
from steersman_systems.rag_tuner.recorder import rankings_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Space
    from steersman_systems.rag_tuner.recorded import Key

    Floats = NDArray[np.float64]

_MOST_RELEVANT = 8
_IDEAL = 10


def made_up(space: Space, rng: np.random.Generator, *, queries: int = 200) -> Recorded:
    """Return recorded evaluations of a synthetic collection.

    The rank of a relevant passage is log-normal. Its mean rises with the difficulty of the query
    and falls with the skill of the ranking. Skill is a smooth function of the fusion weight with
    its maximum between the engines; reranking and expansion add a small random effect. All take
    time. The parameters are random.

    Args:
        queries: number of queries, ≥ 1.

    Raises:
        InputError: no query.

    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> world = made_up(load_policy_config().space, np.random.default_rng(0), queries=5)
    >>> len(world), world.depth
    (5, 32)
    """
    if queries < 1:
        raise InputError(f"queries is {queries!r}; allowed: 1 or more")
    keys, depth = rankings_of(space), max(space.ks)
    relevant = 1 + rng.binomial(_MOST_RELEVANT - 1, rng.uniform(0, 0.7), queries)
    ideal = (np.arange(_IDEAL) < relevant[:, None]).astype(np.float32)
    return Recorded(
        collection="made up",
        queries=tuple(f"q{number}" for number in range(queries)),
        categories=("",) * queries,
        splits=("",) * queries,
        keys=keys,
        gains=_gains(_skills(keys, rng), relevant, depth, rng),
        ideal=ideal,
        relevant=relevant.astype(np.intp),
        latency_ms=_latencies(keys, queries, rng),
        about={"made up": True},
    )


def _skills(keys: tuple[Key, ...], rng: np.random.Generator) -> Floats:
    """Return each ranking's skill: its reduction of a relevant passage's log rank."""
    peak, bend = rng.uniform(0.25, 0.75), rng.uniform(0.5, 4.0)
    again, more = rng.normal(0.0, 0.3), rng.normal(0.0, 0.1)
    found = []
    for variant, rerank, weight, expansion in keys:
        place = {"bm25": 0.0, "dense": 1.0}.get(variant, weight)
        found.append(again * rerank + more * expansion - bend * (place - peak) ** 2)
    return np.array(found)


def _gains(
    skills: Floats, relevant: NDArray[np.intp], depth: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    queries, kinds = len(relevant), len(skills)
    gains = np.zeros((kinds, queries, depth), np.float32)
    hard = rng.uniform(-0.5, 3.0) + rng.uniform(0.5, 2.0) * rng.normal(size=queries)
    scatter = rng.uniform(0.1, 0.5)
    for number in range(_MOST_RELEVANT):
        own = hard + rng.normal(0.0, 0.8, queries) + 0.2 * number
        logs = own - skills[:, None] + rng.normal(0.0, scatter, (kinds, queries))
        rank = np.floor(np.exp(np.minimum(logs, 20.0))).astype(np.int64)
        rows, columns = np.nonzero((rank < depth) & (relevant > number))
        gains[rows, columns, rank[rows, columns]] = 1.0
    return gains


def _latencies(
    keys: tuple[Key, ...], queries: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    start, fused, again, more = rng.uniform(0.5, 2.0) * rng.uniform([2, 1, 1, 0], [60, 20, 40, 5])
    means = [
        start + fused * (variant not in {"bm25", "dense"}) + again * rerank + more * expansion
        for variant, rerank, _, expansion in keys
    ]
    scatter = np.exp(0.2 * rng.normal(size=(len(keys), queries)))
    return (np.array(means)[:, None] * scatter).astype(np.float32)
