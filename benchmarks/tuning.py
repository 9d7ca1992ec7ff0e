"""Gain of the RAG tuner on held-out questions, and regret of its strategies after N evaluations.

``--sets`` names folders of ``--data`` in a format of judged collections; default: cranfield,
scifact and hotpotqa. It needs the extra ``rag``. Quality comes from judgements alone: F is recall@k
and R is nDCG@min(k, 10). Latency is measured here (unit 100 ms). k passages cost k/16.

The benchmark first evaluates every configuration on every question; cached embeddings make the
second run faster. It then tries the strategies on these evaluations. If ``STEERSMAN_RECORDINGS``
names a folder, the evaluations of a set are stored there as ``SET.npz`` and read by the next run.
Empty the folder when the sets or the search change.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.report import Figure, command
from benchmarks.units import half_width
from steersman.errors import DataError
from steersman.retrieval.passage_links import link_titles
from steersman.retrieval.rerank import CosineReranker
from steersman.retrieval.searcher import Searcher
from steersman.training.parallel_map import spread
from steersman_systems.interrogator.trial import cached_minilm
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.judged_collections import load_judged
from steersman_systems.rag_tuner.loop import tune
from steersman_systems.rag_tuner.policy_config import load_policy_config
from steersman_systems.rag_tuner.recorded import load_recorded
from steersman_systems.rag_tuner.recorder import record
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.slices import rotating, stratified, units_of
from steersman_systems.rag_tuner.strategies.factory import DEFAULT, NAMES, build_strategy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from benchmarks.report import Options
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.recorded import Recorded

    Floats = NDArray[np.float64]

_SETS = ("cranfield", "scifact", "hotpotqa")
_BASELINE = Configuration("rrf", k=10)
_SLICE = 32
_PROCESSES = 2
_AFTER = (20, 40, 80, 160)
_SPLITS, _SEEDS, _EVALUATIONS = 40, 12, 160
_CLOSE = 0.005


def run(options: Options) -> Iterator[Figure]:
    """Measure the chosen sets."""
    for name in options.sets or _SETS:
        recorded = recorded_of(name, options)
        for called, tuned in policies().items():
            yield from _measured(f"{name}, {called} weights", recorded, tuned, options)


def policies() -> dict[str, PolicyConfig]:
    """Return the two sets of reward weights, on the units of this benchmark."""
    shipped = load_policy_config()
    units = shipped.thresholds.model_copy(update={"latency_ref_ms": 100.0})
    light = shipped.reward_weights.model_copy(update={"gamma": 0.05, "delta": 0.05})
    default = shipped.model_copy(update={"thresholds": units})
    return {"light": default.model_copy(update={"reward_weights": light}), "default": default}


def recorded_of(name: str, options: Options) -> Recorded:
    """Return every configuration's evaluation on every question of a set.

    Args:
        name: Folder name of the set.
        options: Options with the data directory.

    Raises:
        DataError: The set is missing.
    """
    kept = os.environ.get("STEERSMAN_RECORDINGS")
    if not kept:
        return _recorded(name, options)
    file = Path(kept) / f"{name}.npz"
    if file.is_file():
        print(f"{name}: evaluations of {file}", file=sys.stderr)
        return load_recorded(file)
    found = _recorded(name, options)
    found.save(file)
    return found


def _recorded(name: str, options: Options) -> Recorded:
    collection = load_judged(options.folder(name, "the place that its README names"))
    with cached_minilm() as embedder:
        searcher = Searcher(
            collection.passages,
            embedder=embedder,
            links=link_titles(collection.passages),
            rerankers={"cosine": CosineReranker(embedder)},
        )
        space = load_policy_config().space
        return record(searcher, collection, space, about={"embedder": embedder.name})


def _measured(
    about: str, recorded: Recorded, tuned: PolicyConfig, options: Options
) -> Iterator[Figure]:
    world = World(recorded, tuned)
    splits, seeds = (4, 2) if options.quick else (_SPLITS, _SEEDS)
    true = mean_rewards(world, np.arange(len(recorded)))
    where, processes = options.ray, _PROCESSES
    gained = list(
        spread(partial(held_out_gain, world), range(splits), address=where, processes=processes)
    )
    names = installed()
    tries = [(name, seed) for name in names for seed in range(seeds)]
    found = list(spread(partial(_tried, world, true), tries, address=where, processes=processes))
    tried = {
        name: np.array(found[place * seeds : (place + 1) * seeds])
        for place, name in enumerate(names)
    }
    yield from _gain(about, gained, world, float(true.max()))
    yield from _regret(about, tried)


def installed() -> list[str]:
    """Return the available strategies; print the others with the command that installs them."""
    found = []
    for name in NAMES:
        try:
            build_strategy(name, load_policy_config(), queries=1)
        except DataError as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
        else:
            found.append(name)
    return found


class World(NamedTuple):
    """Recording with its policy configuration."""

    recorded: Recorded
    tuned: PolicyConfig


def mean_rewards(world: World, queries: NDArray[np.intp]) -> Floats:
    """Return the mean reward of every configuration on some queries."""
    recorded, tuned = world
    batches = (recorded.evaluate(one, queries) for one in tuned.space.all)
    return np.array([reward_of(batch, tuned).per_query.mean() for batch in batches])


# -- gain of tuning -------------------------------------------------------------------------------


class TuningGain(NamedTuple):
    """Result of one split: recommendation, and its gain over the baseline on held-out queries."""

    configuration: Configuration
    held_out: NDArray[np.intp]
    ahead: Floats


def held_out_gain(world: World, seed: int) -> TuningGain:
    """Tune on one half of the queries, and compare on the other half."""
    recorded, tuned = world
    rng = np.random.default_rng([seed, 11])
    split = stratified(recorded.categories, rng, groups=recorded.groups)
    strategy = build_strategy(DEFAULT, tuned, queries=len(recorded), seed=seed)
    slices = rotating(split.tuning, _SLICE, rng)
    for _ in tune(strategy, recorded, tuned, slices, evaluations=_EVALUATIONS, seed=seed):
        pass
    chosen = strategy.recommend()
    rewards = [
        reward_of(recorded.evaluate(one, split.held_out), tuned).per_query
        for one in (chosen, _BASELINE)
    ]
    return TuningGain(chosen, split.held_out, rewards[0] - rewards[1])


def _gain(about: str, gained: list[TuningGain], world: World, best: float) -> Iterator[Figure]:
    recorded = world.recorded
    unit = units_of(recorded.groups or [""] * len(recorded))[1]
    mean, half = paired(gained, unit)
    kinds = [str(one.configuration) for one in gained]
    most = max(set(kinds), key=kinds.count)
    print(f"{about}: {kinds.count(most)} of {len(kinds)} splits chose {most}", file=sys.stderr)
    everything = np.arange(len(world.recorded))
    static = float(reward_of(world.recorded.evaluate(_BASELINE, everything), world.tuned)
                   .per_query.mean())  # fmt: skip
    aim = "light" in about
    yield Figure(
        f"{about}: held-out reward over rrf k=10",
        mean, mean - half, mean + half,
        goal="> 0" if aim else None, holds=mean - half > 0 if aim else None,
        peers={
            "rrf k=10 itself": static,
            "best fixed in hindsight": best - static,
            "half the width, over splits as corrected": corrected(gained),
        },
    )  # fmt: skip


def paired(gained: list[TuningGain], unit: NDArray[np.intp]) -> tuple[float, float]:
    """Return the mean gain over splits and half the width of its 95 % interval.

    Queries or conversations are the units (``unit`` has the number of each), because the choice of
    queries is the main source of variance. The interval is over queries, each with its mean gain
    over the splits that held it out. The remaining variance of the splits is added.

    Coverage on eight synthetic worlds of 225 and 300 queries, 200 data sets each: 93 to 99 of 100.
    An interval over splits alone has 30 to 39. With the correction of Nadeau & Bengio (2003),
    section 3, it has 97 to 100 and is 1.3 to 1.8 times as wide
    (``tests/lab/benchmarks/test_tuning_benchmark.py``).
    """
    of_split = np.array([one.ahead.mean() for one in gained])
    sums, times = np.zeros(len(unit)), np.zeros(len(unit))
    for one in gained:
        sums[one.held_out] += one.ahead
        times[one.held_out] += 1
    over_queries = half_width(sums[times > 0] / times[times > 0], unit[times > 0])
    return float(of_split.mean()), float(np.hypot(over_queries, half_width(of_split)))


def corrected(gained: list[TuningGain]) -> float:
    """Return half the width of the interval over splits with the Nadeau & Bengio correction."""
    of_split = np.array([one.ahead.mean() for one in gained])
    return half_width(of_split) * float(np.sqrt(1 + len(of_split)))  # both parts have equal size


# -- comparison of strategies ---------------------------------------------------------------------


def regrets(world: World, true: Floats, name: str, seed: int) -> list[float]:
    """Return the regret of a strategy's recommendation after numbers of evaluations.

    Args:
        world: Recording with its policy configuration.
        true: (configurations,) `mean_rewards` of all queries.
        name: Name of the strategy.
        seed: Random seed of slices and draws.
    """
    recorded, tuned = world
    rng = np.random.default_rng([seed, 12])
    everything = np.arange(len(recorded))
    strategy = build_strategy(name, tuned, queries=len(recorded), seed=seed)
    slices = rotating(everything, _SLICE, rng)
    told = tune(strategy, recorded, tuned, slices, evaluations=max(_AFTER), seed=seed)
    return [
        float(true.max() - true[tuned.space.index[strategy.recommend()]])
        for one in told
        if one.number in _AFTER
    ]


def _tried(world: World, true: Floats, one: tuple[str, int]) -> list[float]:
    return regrets(world, true, *one)


def _regret(about: str, tried: dict[str, NDArray[np.float64]]) -> Iterator[Figure]:
    for place, after in enumerate(_AFTER):
        at = {name: found[:, place] for name, found in tried.items()}
        mine = at[DEFAULT]
        half = half_width(mine)
        peers = {name: float(of.mean()) for name, of in at.items() if name != DEFAULT}
        if after <= 40:
            goal, holds = "<= random", bool(mine.mean() <= peers["random"])
        else:
            goal, holds = "<= best + .005", bool(mine.mean() <= min(peers.values()) + _CLOSE)
        yield Figure(
            f"{about}: regret of {DEFAULT} after {after} evaluations",
            float(mine.mean()), float(mine.mean() - half), float(mine.mean() + half),
            goal=goal, holds=holds, peers=peers,
        )  # fmt: skip
        # Equal seeds give both the same slices, so differences are paired by seed.
        rival = min(peers, key=lambda name: peers[name]) if after > 40 else "random"
        ahead = mine - at[rival]
        mean, half = float(ahead.mean()), half_width(ahead)
        yield Figure(
            f"{about}: the same less that of {rival}, after {after}", mean, mean - half, mean + half
        )


if __name__ == "__main__":
    command("tuning", run, doc=__doc__)
