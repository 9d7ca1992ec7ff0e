"""Evaluations that each feature group saves a sequential tuning policy after a change of weights.

It needs the extras ``rl`` and ``rag``, and reads no set. The policy of `benchmarks.tuning_ppo` is
trained again without each group (`steersman_systems.rag_tuner.features.GROUPS`), and with the
belief alone, as in that benchmark. Then the reward weights change on made-up collections outside
the training data. The figure counts evaluations of 32 queries until the recommendation is within
.01 of the new best; 64 if it never is. Differences are paired by collection, with 95 % intervals
over collections, given the trained policies. A group is useful if its interval lies above 0.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Figure, command
from benchmarks.tuning import World, mean_rewards, policies
from benchmarks.tuning_ppo import (
    UNSEEN,
    UPDATES,
    Change,
    interval,
    one_thread,
    ppo_recovers,
    train_on,
)
from lab.made_up_collections import made_up
from steersman_systems.rag_tuner.features import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from benchmarks.report import Options

    Floats = NDArray[np.float64]

_COLLECTIONS, _QUERIES, _POLICIES = 12, 200, 2
_ALL = "all"
_ALONE = "all but the belief"
SEEN: dict[str, tuple[str, ...]] = {
    _ALL: (),
    **{group: (group,) for group in GROUPS},
    _ALONE: UNSEEN,
}


def run(options: Options) -> Iterator[Figure]:
    """Train with each group left out, then count evaluations until recovered."""
    updates, trained, collections = UPDATES, _POLICIES, _COLLECTIONS
    if options.quick:
        updates, trained, collections = 1, 1, 2
    tasks = list(product(SEEN.values(), range(trained)))
    with get_context("spawn").Pool(2, one_thread) as pool:
        taught = pool.starmap(partial(_taught, updates), tasks, chunksize=1)
        changes = pool.map(_change, range(collections))
        found = np.array(
            [pool.starmap(ppo_recovers, [(change, one, 0) for change in changes]) for one in taught]
        )
    counts = dict(zip(SEEN, found.reshape(len(SEEN), trained, -1).mean(axis=1), strict=True))
    yield Figure("all seen: evaluations until recovered", *_with_ends(counts[_ALL]))
    for left_out, of in counts.items():
        print(f"without {left_out}: {of.mean():.1f}", file=sys.stderr)
        if left_out != _ALL:
            name = f"{left_out} left out: evaluations until recovered, less those with all seen"
            yield Figure(name, *_with_ends(of - counts[_ALL]), peers={"itself": float(of.mean())})


def _taught(updates: int, unseen: tuple[str, ...], seed: int) -> object:
    return train_on(updates, seed, unseen)


def _change(number: int) -> Change:
    light, default = policies()["light"], policies()["default"]
    recorded = made_up(default.space, np.random.default_rng([number, 7]), queries=_QUERIES)
    after = World(recorded, default)
    return Change(World(recorded, light), after, mean_rewards(after, np.arange(_QUERIES)))


def _with_ends(values: Floats) -> tuple[float, float, float]:
    mean, half = interval(values)
    return mean, mean - half, mean + half


if __name__ == "__main__":
    command("tuning_features", run, doc=__doc__)
