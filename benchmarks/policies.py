"""Time of one decision and one update, compared with rival libraries in the same process.

``--sets`` names cells (features x arms): 64x3, 256x50, 64x1000; default: all. It needs the extra
``bench``. Each contender gets about 6 seconds per cell.

All contenders get the same contexts and learn from the same log. They take turns of a few pairs
(decide, then update), so a slow moment of the machine affects all, and work that an update defers
counts in the next decision. Our times include exact propensities.

A goal holds only if the whole interval reaches it. "Any peer" includes Vowpal Wabbit, whose models
keep no uncertainty (O(K d) work). "Same algorithm" is LinUCB against LinUCB, LinTS against LinTS
(O(K d²)), and our epsilon-greedy (decides in O(K d), exact regressions) against Vowpal Wabbit's
(gradient steps).

All start with two rows per arm and learn the same rows repeatedly. Our linear policies store arms
known in so few directions as rows (`steersman.policies.inverse_cache`). So arms known in all
directions, from as many rows as features, have separate figures ("well known"). The cost of a
rival's decision does not depend on what it has learned.

LinUCB with well known arms reads one triangle per arm: K·d(d+1)/2·4 bytes in float32. The last
figures divide its time by the time to stream as many bytes, at the bandwidth of this run for a
working set of that size (strict, because a cache may hold it) and for main memory.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.machine import measure_bandwidth
from benchmarks.peers import PEERS, Peer, make_peer
from benchmarks.report import Figure, Options, command
from steersman.errors import DataError
from steersman.policies import EpsilonGreedy, LinTS, LinUCB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

CELLS = ((64, 3), (256, 50), (64, 1000))
BANDWIDTH_CELL = (256, 50)
OURS: dict[str, type[LinUCB | LinTS | EpsilonGreedy]] = {
    "LinUCB": LinUCB,
    "LinTS": LinTS,
    "EpsilonGreedy": EpsilonGreedy,
}
SAME_ALGORITHM = {"LinUCB": "LinUCB", "LinTS": "LinTS", "EpsilonGreedy": "epsilon-greedy"}
# The rivals loop over actions in Python, so the goal is higher with many actions.
GOALS = {("LinUCB", (64, 1000), "decide"): 50.0, ("LinTS", (64, 1000), "decide"): 10.0}
PAIRS_A_TURN = 10
WARM_ROWS_PER_ARM = 2
WELL_KNOWN = ("LinUCB", "LinTS")
WELL_KNOWN_CELLS = CELLS[1:]  # for three arms of 64 features dense copies are always kept


@dataclass(frozen=True)
class Log:
    """Contexts (n, d), actions (n,) and rewards (n,) in [0, 1], the same for all policies."""

    contexts: Vector
    actions: NDArray[np.int64]
    rewards: Vector


@dataclass
class Contender:
    """Timed policy with the seconds of its calls."""

    name: str
    peer: Peer
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"decide": [], "update": []})
    spent: float = 0.0

    def take_turn(self, log: Log, pairs: int, longest: float) -> None:
        """Decide and update up to ``pairs`` times, for at most ``longest`` seconds."""
        started = time.perf_counter()
        for _ in range(pairs):
            row = len(self.seconds["decide"]) % len(log.actions)
            x, action = log.contexts[row], int(log.actions[row])
            before = time.perf_counter()
            self.peer.decide(x)
            between = time.perf_counter()
            self.peer.update(x, action, float(log.rewards[row]), 0.5)
            after = time.perf_counter()
            self.seconds["decide"].append(between - before)
            self.seconds["update"].append(after - between)
            if after - started > longest:
                break
        self.spent += time.perf_counter() - started


class _Steersman:
    """Steersman policy with the interface of the rivals."""

    def __init__(self, name: str, dim: int, arms: int, *, well_known: bool = False) -> None:
        self.name = self.algorithm = name
        self._well_known = well_known
        self._names = [str(action) for action in range(arms)]
        self._policy = OURS[name](self._names, dim)
        self._rng = np.random.default_rng(0)

    def decide(self, x: Vector) -> tuple[int, float]:
        choice = self._policy.decide(x, rng=self._rng)
        return int(choice.action), choice.propensity

    def update(self, x: Vector, action: int, reward: float, propensity: float) -> None:
        self._policy.learn(x, self._names[action], reward)

    def warm(self, contexts: Vector, actions: NDArray[np.int64], rewards: Vector) -> None:
        self._policy.learn_batch(contexts, [self._names[action] for action in actions], rewards)
        if self._well_known:
            dim, rng = contexts.shape[1], np.random.default_rng(1)
            for name in self._names:
                rows = rng.normal(size=(dim, dim)) / math.sqrt(dim)
                self._policy.learn_batch(rows, [name] * dim, rng.random(dim))


def run(options: Options) -> Iterator[Figure]:
    """Yield the figures of every cell; ``--sets 64x3,256x50`` names some of them."""
    known = [f"{dim}x{arms}" for dim, arms in CELLS]
    if unknown := [name for name in options.sets if name not in known]:
        message = f"unknown set {', '.join(unknown)}; known are {', '.join(known)}"
        raise DataError(message)
    for dim, arms in CELLS:
        if options.sets and f"{dim}x{arms}" not in options.sets:
            continue
        before = _bandwidths(dim, arms)
        contenders = _race(dim, arms, budget=0.5 if options.quick else 6.0)
        after = _bandwidths(dim, arms)
        yield from _cell_figures(contenders, (dim, arms))
        if (dim, arms) == BANDWIDTH_CELL:
            speeds = {key: (before[key] + after[key]) / 2 for key in before}
            yield from _bandwidth_figures(contenders[_known("LinUCB")], speeds, dim, arms)


def _race(dim: int, arms: int, budget: float) -> dict[str, Contender]:
    """Return all contenders after about ``budget`` seconds each, and at least 5 turns."""
    log = _make_log(dim, arms)
    made: dict[str, Peer] = {name: _Steersman(name, dim, arms) for name in OURS}
    if (dim, arms) in WELL_KNOWN_CELLS:
        made |= {_known(name): _Steersman(name, dim, arms, well_known=True) for name in WELL_KNOWN}
    made |= {name: make_peer(name, dim, arms) for name in PEERS}
    contenders = {name: Contender(name, peer) for name, peer in made.items()}
    for contender in contenders.values():
        contender.peer.warm(log.contexts, log.actions, log.rewards)
    waiting = list(contenders.values())
    while waiting:
        for contender in waiting:
            contender.take_turn(log, PAIRS_A_TURN, budget / 10)
        waiting = [
            contender
            for contender in waiting
            if len(contender.seconds["decide"]) < 5
            or (contender.spent < budget and len(contender.seconds["decide"]) < 1000)
        ]
    return contenders


def _known(name: str) -> str:
    """Return the name of a policy whose arms are known in all directions."""
    return f"{name}, well known:"


def _make_log(dim: int, arms: int) -> Log:
    rng = np.random.default_rng(0)
    rows = WARM_ROWS_PER_ARM * arms
    # Each arm comes equally often, in mixed order.
    actions = rng.permutation(np.arange(rows) % arms)
    return Log(rng.normal(size=(rows, dim)) / math.sqrt(dim), actions, rng.random(rows))


def _cell_figures(contenders: dict[str, Contender], cell: tuple[int, int]) -> Iterator[Figure]:
    peers = {name: contenders[name] for name in PEERS}
    for name in (one for one in contenders if one not in peers):
        ours = contenders[name].peer.algorithm
        for call in ("decide", "update"):
            title = f"{name} {call} {cell}"
            low, value, high = _interval(_medians(contenders[name], call))
            times = {name: _microseconds(peer, call) for name, peer in peers.items()}
            yield Figure(title, value, low, high, "µs", peers=times)
            wanted = SAME_ALGORITHM[ours]
            same = {
                rival: peer
                for rival, peer in peers.items()
                if peer.peer.algorithm.startswith(wanted)
            }
            for against, rivals in (("any peer", peers), ("same algorithm", same)):
                yield _ratio(f"{title}: {against}", contenders[name], rivals, call, cell)


def _ratio(
    title: str, ours: Contender, rivals: dict[str, Contender], call: str, cell: tuple[int, int]
) -> Figure:
    """Return the fastest rival's time over ours, with a bootstrap interval."""
    fastest = min(rivals.values(), key=lambda rival: _microseconds(rival, call))
    low, value, high = _interval(_medians(fastest, call) / _medians(ours, call))
    goal = GOALS.get((ours.peer.algorithm, cell, call), 1.0)
    peers = {fastest.name: _microseconds(fastest, call)}
    return Figure(title, value, low, high, "times", f"> {goal:g}", low > goal, peers)


def _bandwidth_figures(
    contender: Contender, speeds: dict[str, float], dim: int, arms: int
) -> Iterator[Figure]:
    for what, speed in speeds.items():
        yield Figure(f"bandwidth, {what}", speed / 1e9, unit="GB/s")
    moved = _bytes_moved(dim, arms)
    for what, speed in speeds.items():
        low, value, high = _interval(_medians(contender, "decide") * 1e-6 / (moved / speed))
        over = f"{moved / 1e6:.2f} MB at the bandwidth of {what}"
        title = f"{_known('LinUCB')} decide {dim, arms} over {over}"
        yield Figure(title, value, low, high, "times", "<= 3", high <= 3)


def _bandwidths(dim: int, arms: int) -> dict[str, float]:
    return {
        "a working set this size": measure_bandwidth(max(_bytes_moved(dim, arms), 4096)),
        "main memory": measure_bandwidth(),
    }


def _bytes_moved(dim: int, arms: int) -> int:
    return arms * dim * (dim + 1) // 2 * np.dtype(np.float32).itemsize


def _microseconds(contender: Contender, call: str) -> float:
    return 1e6 * float(np.median(contender.seconds[call]))


def _medians(contender: Contender, call: str) -> Vector:
    """Return the median in µs, then 1,000 bootstrap copies of it."""
    seconds = np.array(contender.seconds[call])
    rng = np.random.default_rng(len(seconds))
    resampled = rng.choice(seconds, size=(1000, len(seconds)))
    return 1e6 * np.concatenate([[np.median(seconds)], np.median(resampled, axis=1)])


def _interval(copies: Vector) -> tuple[float, float, float]:
    """Return the 95 % percentile interval around the first entry: low, value, high."""
    low, high = np.quantile(copies[1:], [0.025, 0.975])
    return float(low), float(copies[0]), float(high)


if __name__ == "__main__":
    command("policies", run, doc=__doc__)
