"""Speed, memory, interval coverage and closed forms of off-policy evaluation.

``--sets`` names campaigns of the Open Bandit Dataset: all and men by default, or any with logs in
the same folder. Coverage tables take 2,000 runs of 5,000 rows; ``--quick`` takes 200, and a tenth
of the rows for speed. The peer is the textbook bootstrap in plain numpy, which resamples rows. obp
does not install on Python 3.11.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Literal

import numpy as np

from benchmarks.ope_worlds import ADAPTIVE_WORLDS, IndependentWorld
from benchmarks.open_bandit import CAMPAIGNS, ORIGIN, BanditLog, load_log
from benchmarks.report import Figure, Options, command
from steersman.errors import DataError
from steersman.ope import LoggedData, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_ROWS = 5000
_ACTIONS = 10
_COVERED = "0.93 to 0.97"
_PEER = "row bootstrap, numpy"


def run(options: Options) -> Iterator[Figure]:
    """Yield every figure, fast ones first."""
    logs = _logs(options)  # missing data raises here, not after minutes
    runs = 200 if options.quick else 2000
    yield from _speed(100_000 if options.quick else 1_000_000)
    yield from _independent(runs)
    yield from _adaptive(runs)
    yield from _bernstein(runs)
    for campaign, pair in logs.items():
        yield from _open_bandit(campaign, *pair)


def _speed(rows: int) -> Iterator[Figure]:
    """Time the whole evaluation in a fresh process with one BLAS thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    call = [sys.executable, "-m", "benchmarks.ope", "--measure", str(rows)]
    out = subprocess.run(call, check=True, capture_output=True, text=True, env=environment).stdout
    seconds, peak_gb, peer_seconds, ratio = (float(part) for part in out.split())
    size = f"{rows / 1e6:g}M rows, K = {_ACTIONS}, 4 estimators, 10k resamples"
    yield Figure(
        f"evaluate, {size}",
        seconds,
        unit="s",
        goal="< 6 s",
        holds=seconds < 6.0,
        peers={f"{_PEER}, IPS alone": peer_seconds},
    )
    yield Figure("peak memory of it", peak_gb, unit="GB", goal="< 2 GB", holds=peak_gb < 2.0)
    yield Figure(
        "IPS bootstrap over Wald width", ratio, goal="0.95 to 1.05", holds=abs(ratio - 1.0) < 0.05
    )


def measure(rows: int) -> None:
    """Print seconds, peak memory in GB, the peer's seconds and bootstrap over Wald width."""
    data = _large_log(rows)
    began = time.perf_counter()
    report = evaluate(data, interval="bootstrap", resamples=10_000)
    seconds = time.perf_counter() - began
    # Linux counts kilobytes; the peer runs after this line, so its memory does not count.
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    few = 20
    began = time.perf_counter()
    _row_bootstrap(data.weights * data.rewards, few)
    peer_seconds = (time.perf_counter() - began) * 10_000 / few
    wald = evaluate(data, estimators=("ips",))["ips"]
    ratio = _width(report["ips"].low, report["ips"].high) / _width(wald.low, wald.high)
    print(seconds, peak_gb, peer_seconds, ratio)


def _large_log(rows: int) -> LoggedData:
    rng = np.random.default_rng(0)
    logged = np.linspace(0.05, 0.15, _ACTIONS)
    actions = rng.choice(_ACTIONS, size=rows, p=logged)
    rewards = (rng.random(rows) < 0.1 + 0.05 * actions).astype(float)
    target = rng.dirichlet(np.ones(_ACTIONS), rows)
    return LoggedData(actions, rewards, logged[actions], target)


def _row_bootstrap(terms: Floats, resamples: int) -> Floats:
    rng = np.random.default_rng(0)
    size = len(terms)
    return np.array([terms[rng.integers(0, size, size)].mean() for _ in range(resamples)])


def _independent(runs: int) -> Iterator[Figure]:
    for world, said in (
        (IndependentWorld(), "independent rows"),
        (IndependentWorld(units=5), "units of 5 rows"),
    ):
        logs = (world.log(np.random.default_rng([1, run]), _ROWS) for run in range(runs))
        yield from _coverage(said, logs, world.truth, ("ips", "snips", "dr"))


def _adaptive(runs: int) -> Iterator[Figure]:
    for world in ADAPTIVE_WORLDS:
        logs = world.logs(np.random.default_rng(2), runs, _ROWS)
        said = f"adaptive: {world.name}"
        yield from _coverage(said, logs, world.truth, ("ips", "snips", "dr"), adaptive=True)


def _bernstein(runs: int) -> Iterator[Figure]:
    world = IndependentWorld()
    logs = (world.log(np.random.default_rng([3, run]), _ROWS) for run in range(runs))
    yield from _coverage(
        "independent rows", logs, world.truth, ("ips", "snips", "dr"), interval="bernstein"
    )


def _coverage(
    said: str,
    logs: Iterable[LoggedData],
    truth: float,
    names: tuple[str, ...],
    *,
    adaptive: bool = False,
    interval: Literal["wald", "bernstein"] = "wald",
) -> Iterator[Figure]:
    """Yield the coverage of intervals and their mean width."""
    found: dict[str, list[tuple[bool, float]]] = {name: [] for name in names}
    refused = 0
    for data in logs:
        report = evaluate(data, estimators=names, adaptive=adaptive, interval=interval)
        refused += report.refused
        for name in () if report.refused else names:
            low, high = report[name].low, report[name].high
            if low is not None and high is not None:
                found[name].append((low <= truth <= high, high - low))
    for name, pairs in found.items():
        share, width = (float(np.mean(column)) for column in zip(*pairs, strict=True))
        error = 1.96 * math.sqrt(share * (1.0 - share) / len(pairs))
        exact = interval == "wald"
        yield Figure(
            f"{name} {interval} coverage, {said}, n = {_ROWS:,}, {len(pairs):,} runs"
            + (f", {refused} refused" if refused else ""),
            share,
            share - error,
            min(1.0, share + error),
            goal=_COVERED if exact else ">= 0.95",
            holds=0.93 <= share <= 0.97 if exact else share >= 0.95,
        )
        yield Figure(f"{name} {interval} mean width, {said}, n = {_ROWS:,}", width)


def _logs(options: Options) -> dict[str, tuple[BanditLog, BanditLog]]:
    """Return the logs of the random policy and of bts by campaign."""
    if options.data is None and options.quick and not options.sets:
        return {}
    folder = options.folder("obd_small", ORIGIN)
    return {
        campaign: (load_log(folder, "random", campaign), load_log(folder, "bts", campaign))
        for campaign in options.sets or CAMPAIGNS
    }


def _open_bandit(campaign: str, log: BanditLog, other: BanditLog) -> Iterator[Figure]:
    """Compare random -> bts with the closed forms; the target is bts's item frequencies."""
    shown = np.bincount(other.items, minlength=log.actions)
    clicked = np.bincount(other.items, weights=other.clicks, minlength=log.actions)
    if len(shown) > log.actions:
        message = f"obd_small {campaign}: bts shows item {len(shown) - 1} of {log.actions}"
        raise DataError(f"{message}; take both logs from one edition")
    shares, guess = shown / len(other.items), clicked / np.maximum(shown, 1)
    rows = len(log.items)
    data = LoggedData(
        log.items,
        log.clicks,
        log.propensities,
        np.tile(shares, (rows, 1)),
        q_hat=np.tile(guess, (rows, 1)),
    )
    report = evaluate(data)
    about, itself = f"obd_small {campaign}, random -> bts", float(other.clicks.mean())
    if report.refused:
        yield Figure(f"{about}: refused, {'; '.join(report.reasons)}", math.nan)
        return
    uniform = bool(np.allclose(log.propensities, 1.0 / log.actions, rtol=1e-9))
    for name, closed in _closed_forms(log, shares, guess).items():
        estimate = report[name]
        value = math.nan if estimate.value is None else estimate.value
        yield Figure(
            f"{name}, {about}",
            value,
            estimate.low,
            estimate.high,
            unit="clicks",
            goal="closed form to 1e-12" if uniform else None,
            holds=abs(value - closed) <= 1e-12 if uniform else None,
            peers=({"closed form": closed} if uniform else {}) | {"clicks of bts itself": itself},
        )


def _closed_forms(log: BanditLog, shares: Floats, guess: Floats) -> dict[str, float]:
    """Return the estimates as sums over items: a uniform log has p = 1 / K everywhere."""
    shown = np.bincount(log.items, minlength=log.actions)
    clicked = np.bincount(log.items, weights=log.clicks, minlength=log.actions)
    scale = log.actions / len(log.items)
    return {
        "ips": scale * math.fsum(shares * clicked),
        "snips": math.fsum(shares * clicked) / math.fsum(shares * shown),
        "dm": math.fsum(shares * guess),
        "dr": math.fsum(shares * guess) + scale * math.fsum(shares * (clicked - guess * shown)),
    }


def _width(low: float | None, high: float | None) -> float:
    return math.nan if low is None or high is None else high - low


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(int(sys.argv[2]))
    else:
        command("ope", run, doc=__doc__)
