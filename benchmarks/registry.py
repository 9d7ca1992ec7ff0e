"""What shipping a snapshot costs: packing, publishing, verifying and loading, merging, measuring.

Each figure is the median of its runs with their 5th and 95th percentile; a goal holds only when the
95th percentile is on its side. States are of LinTS that has learned, so that nothing is compressed
away that would not be in use; every run publishes or merges another state. Publishing begins with
a state in memory and ends when the signed metadata are on disk, as each file is flushed. Verifying
begins with a new consumer that knows nothing but the trusted root, and ends with a policy that
could decide.

The peers say what the parts cost without the safety: the compression, the hash or the file alone,
and ``numpy.savez``, which neither signs nor verifies. They run in turns with ours.
"""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from benchmarks.report import Figure, Options, command
from steersman.policies import LinTS, load_policy
from steersman.registry import (
    check_state,
    gather,
    largest_eigenvalue,
    merge_states,
    pack_snapshot,
    pack_state,
    unpack_snapshot,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    State = Mapping[str, NDArray[Any]]

LARGE = (256, 50)
MERGED = ((64, 50), LARGE)
DELTAS = 100
ROWS = 4000


@dataclass(frozen=True)
class Timed:
    """Seconds that each run of one thing took."""

    seconds: tuple[float, ...]

    def at(self, share: float) -> float:
        """Return a quantile of the seconds."""
        return float(np.quantile(self.seconds, share))


def run(options: Options) -> Iterator[Figure]:
    """Measure and yield the figures of the chosen parts."""
    unknown = sorted(set(options.sets) - set(PARTS))
    if unknown:
        message = f"unknown parts {unknown}; known are {', '.join(PARTS)}"
        raise SystemExit(message)
    for name, part in PARTS.items():
        if not options.sets or name in options.sets:
            yield from part(options)


def _bytes(options: Options) -> Iterator[Figure]:
    state = _learned(*LARGE).state()
    plain, packed = pack_state(state), pack_snapshot(state)
    runs = 5 if options.quick else 30
    taken = _in_turns(
        runs,
        {
            "pack": lambda: pack_snapshot(state),
            "safetensors alone": lambda: save(dict(state)),
            "zstd level 1 alone": lambda: zstd.compress(plain, 1),
            "zstd level 3 alone": lambda: zstd.compress(plain, 3),
            "sha256 alone": lambda: hashlib.sha256(packed).digest(),
        },
    )
    yield _figure("pack, d=256 K=50", taken)
    taken = _in_turns(
        runs,
        {
            "unpack": lambda: check_state(unpack_snapshot(packed)),
            "zstd alone": lambda: zstd.decompress(packed),
            "sha256 alone": lambda: hashlib.sha256(packed).digest(),
        },
    )
    yield _figure("unpack and check, d=256 K=50", taken)
    full = 8 * LARGE[0] ** 2 * LARGE[1]
    sizes = {"packed triangles": len(plain) / 1e6, "whole matrices": full / 1e6}
    yield Figure("size, d=256 K=50", len(packed) / 1e6, unit="MB", peers=sizes)


def _measures(options: Options) -> Iterator[Figure]:
    state = _learned(*LARGE).state()
    pooled = state["gram"].sum(axis=0) / state["count"].sum()
    dense = np.zeros((LARGE[0], LARGE[0]))
    columns, rows = np.tril_indices(LARGE[0])
    dense[rows, columns] = dense[columns, rows] = pooled
    found = largest_eigenvalue(state)
    exact = float(np.linalg.eigvalsh(dense)[-1])
    taken = _in_turns(
        5 if options.quick else 30,
        {
            "measure": lambda: largest_eigenvalue(state),
            "numpy eigvalsh of the pooled matrix": lambda: np.linalg.eigvalsh(dense),
        },
    )
    yield _figure("largest eigenvalue, d=256 K=50", taken)
    error = abs((found or 0.0) / exact - 1.0)
    yield Figure("largest eigenvalue: relative error", error, goal="< 0.001", holds=error < 1e-3)


def _merging(options: Options) -> Iterator[Figure]:
    count = DELTAS // 5 if options.quick else DELTAS
    for dim, arms in MERGED:
        base, deltas = _deltas(dim, arms, count)
        calls: dict[str, Callable[[], object]] = {
            "merge": partial(merge_states, base, deltas),
            "policy.merge, delta by delta": partial(_one_by_one, base, deltas),
            "numpy sums, unchecked": partial(_plain, base, deltas),
        }
        taken = _in_turns(2 if options.quick else 7, calls)
        yield _figure(f"merge of {count} deltas, d={dim} K={arms}", taken, unit="s", goal=1.0)


PARTS: dict[str, Callable[[Options], Iterator[Figure]]] = {
    "bytes": _bytes,
    "measures": _measures,
    "merging": _merging,
}


def _learned(dim: int, arms: int, *, rows: int = ROWS, seed: int = 0) -> LinTS:
    """Return a policy that has learned from drawn contexts of norm about 1."""
    policy = LinTS(_names(arms), dim)
    _learn(policy, np.random.default_rng(seed), rows)
    return policy


def _learn(policy: Any, rng: np.random.Generator, rows: int) -> None:
    names = policy.actions
    contexts = rng.normal(size=(rows, policy.dim)) / np.sqrt(policy.dim)
    policy.learn_batch(contexts, [names[i % len(names)] for i in range(rows)], rng.random(rows))


def _names(arms: int) -> list[str]:
    return [f"action_{number}" for number in range(arms)]


def _deltas(dim: int, arms: int, count: int) -> tuple[State, list[State]]:
    """Return a base, and what so many copies learned since, in no order."""
    rng = np.random.default_rng(1)
    base = _learned(dim, arms, rows=1000).state()
    deltas: list[State] = []
    for number in rng.permutation(count):
        copy = load_policy(base)
        _learn(copy, rng, 2 * arms)
        deltas.append(copy.delta(id=f"worker {number:03}"))
    return base, deltas


def _one_by_one(base: State, deltas: list[State]) -> State:
    policy = load_policy(base)
    policy.merge(gather(deltas))
    return policy.state()


def _plain(base: State, deltas: list[State]) -> State:
    total = {name: array.copy() for name, array in base.items() if name != "meta"}
    for delta in deltas:
        for name in total:
            total[name] += delta[name]
    return total


def _in_turns(runs: int, calls: Mapping[str, Callable[[], object]]) -> dict[str, Timed]:
    """Return how long each call took in each of the runs; one more before them is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(runs + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn > 0:
                taken[name].append(time.perf_counter() - start)
    return {name: Timed(tuple(seconds)) for name, seconds in taken.items()}


def _figure(
    name: str, taken: Mapping[str, Timed], *, unit: str = "ms", goal: float | None = None
) -> Figure:
    """Return a figure whose first entry is ours and whose others are the peers."""
    scale = {"ms": 1000.0, "s": 1.0}[unit]
    (_, ours), *peers = taken.items()
    high = ours.at(0.95) * scale
    return Figure(
        name,
        ours.at(0.5) * scale,
        ours.at(0.05) * scale,
        high,
        unit=f"{unit} (5–95 %)",
        goal=None if goal is None else f"<= {goal:g} {unit}",
        holds=None if goal is None else high <= goal,
        peers={peer: timed.at(0.5) * scale for peer, timed in peers},
    )


if __name__ == "__main__":
    command("registry", run, doc=__doc__)
