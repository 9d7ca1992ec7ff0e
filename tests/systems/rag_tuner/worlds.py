"""A small recorded world whose best configuration is known, made without any model."""

import numpy as np

from steersman_systems.rag_tuner.configuration import Configuration, Space
from steersman_systems.rag_tuner.policy_config import load_policy_config
from steersman_systems.rag_tuner.recorded import Recorded
from steersman_systems.rag_tuner.recorder import rankings_of

SPACE = Space(
    variants=("bm25", "dense", "hybrid"),
    ks=tuple(range(3, 33)),
    rerank=(False, True),
    weights=tuple(np.linspace(0, 1, 21).round(6).tolist()),
    expansion=(False, True),
    prompts=("plain",),
)
DEPTH = 32


def world(queries=120, seed=0):
    """One relevant passage a query; how early it comes depends on the ranking, and on the query."""
    rng = np.random.default_rng(seed)
    keys = rankings_of(SPACE, extra=[Configuration("rrf")])
    hard = rng.normal(size=queries)
    gains = np.zeros((len(keys), queries, DEPTH), np.float32)
    for row, (variant, rerank, weight, expansion) in enumerate(keys):
        place = {"bm25": 0.0, "dense": 1.0, "rrf": 0.5}.get(variant, weight)
        skill = 1.2 - 4.0 * (place - 0.6) ** 2 + 0.3 * expansion - 0.2 * rerank
        rank = np.floor(np.exp(1.5 + hard - skill + 0.3 * rng.normal(size=queries))).astype(int)
        found = rank < DEPTH
        gains[row, np.flatnonzero(found), rank[found]] = 1.0
    ideal = np.zeros((queries, 10), np.float32)
    ideal[:, 0] = 1.0
    latency = np.array([5.0 + 3.0 * key[1] for key in keys], np.float32)
    return Recorded(
        collection="world",
        queries=tuple(f"q{number}" for number in range(queries)),
        categories=tuple("ab"[number % 2] for number in range(queries)),
        splits=("",) * queries,
        keys=keys,
        gains=gains,
        ideal=ideal,
        relevant=np.ones(queries, np.intp),
        latency_ms=np.repeat(latency[:, None], queries, axis=1),
        about={"made": "by hand"},
    )


def tuned(**weights):
    """The shipped policy, with other reward weights."""
    shipped = load_policy_config()
    changed = shipped.reward_weights.model_copy(update=weights)
    return shipped.model_copy(update={"reward_weights": changed})
