"""Fits the assistant's arrival laws to the public traces and measures the fit."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize, stats

from benchmarks.report import Figure
from steersman.errors import DataError
from steersman_systems.assistant.arrivals import LOAD, REUSE, LoadLaw, arrival_times, arrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from benchmarks.report import Options

MOONCAKE = "github.com/kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace.jsonl"
AZURE = "github.com/Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_conv.csv"
CACHE_SIZES = (100, 400, 1600, 100_000)
WINDOWS_S = (1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0)
STREAMS = 20


def read_columns(folder: Path, name: str, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Return columns of a Parquet file as lists.

    Args:
        folder: Folder of the file.
        name: Name of the file.
        columns: Names of the columns.

    Returns:
        One list per column.

    Raises:
        DataError: the file is missing or has other columns.
    """
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 - extra: only where needed

    try:
        table = parquet.read_table(folder / name, columns=list(columns))
    except (OSError, ArrowException) as wrong:
        message = f"{folder / name} is not a parquet file with columns {list(columns)}: {wrong}"
        raise DataError(message) from wrong
    return {column: table[column].to_pylist() for column in columns}


def law_figures(options: Options) -> Iterator[Figure]:
    """Return refits of both laws with the shipped constants, and their goodness of fit."""
    prompts, seconds = _conversation(options)
    keys = np.array([blocks[1] for blocks in prompts], dtype=np.int64)
    yield from _repeat_figures(prompts, keys, seconds)
    yield from _reuse_figures(keys, seconds)
    yield from _load_figures(_azure_seconds(options))


# Repeated requests ----------------------------------------------------------------------


def _conversation(options: Options) -> tuple[list[tuple[int, ...]], NDArray[np.float64]]:
    """Return prefix blocks and time in seconds of each request."""
    folder = options.folder("cache", MOONCAKE)
    rows = read_columns(folder, "mooncake_conversation_trace.parquet", ["timestamp", "hash_ids"])
    prompts = [tuple(blocks) for blocks in rows["hash_ids"]]
    return prompts, np.array(rows["timestamp"], dtype=np.float64) / 1000.0


def _repeat_figures(
    prompts: list[tuple[int, ...]], keys: NDArray[np.int64], seconds: NDArray[np.float64]
) -> Iterator[Figure]:
    again = np.ones(len(keys), dtype=bool)
    again[np.unique(keys, return_index=True)[1]] = False
    yield Figure("trace: arrivals whose key (block 1) came before", float(again.mean()))
    late = float(again[seconds > 600].mean())
    yield Figure("trace: the same after the first ten minutes", late)
    same = 1.0 - len(set(prompts)) / len(prompts)
    yield Figure("trace: arrivals whose whole prompt came before", same)


def _reuse_figures(keys: NDArray[np.int64], seconds: NDArray[np.float64]) -> Iterator[Figure]:
    seen, gaps, back = _returns(keys, seconds)
    best, errors = _maximum_likelihood(seen, gaps, back)
    shipped = (REUSE.a, REUSE.b, REUSE.gap_log_mean, REUSE.gap_log_sd)
    for name, value, error, constant in zip(
        ("a", "b", "gap_log_mean", "gap_log_sd"), best, errors, shipped, strict=True
    ):
        low, high = value - 1.96 * error, value + 1.96 * error
        yield Figure(
            f"reuse law: {name}, refitted", float(value), float(low), float(high),
            goal="shipped constant within 0.5 %", holds=bool(abs(constant / value - 1) < 0.005),
            peers={"shipped": constant},
        )  # fmt: skip
    yield Figure(
        "reuse law: log-likelihood with log-normal gaps",
        _log_likelihood(stats.lognorm, seen, gaps, back),
        peers={
            "log-logistic": _log_likelihood(stats.fisk, seen, gaps, back),
            "Lomax": _log_likelihood(stats.lomax, seen, gaps, back),
            "Weibull": _log_likelihood(stats.weibull_min, seen, gaps, back),
        },
    )
    yield from _fit_figures(keys)


def _fit_figures(keys: NDArray[np.int64]) -> Iterator[Figure]:
    """Return figures of drawn streams of the trace's size, with those of the trace."""
    distinct = len(np.unique(keys))
    streams = [
        arrivals(distinct, len(keys), np.random.default_rng(seed)) for seed in range(STREAMS)
    ]
    for size in CACHE_SIZES:
        rates = [_lru_hit_rate(stream.tolist(), size) for stream in streams]
        low, high = np.quantile(rates, [0.0, 1.0])
        yield Figure(
            f"reuse law: hit rate of an LRU cache of {size}, drawn streams",
            float(np.mean(rates)), float(low), float(high),
            peers={"trace": _lru_hit_rate(keys.tolist(), size)},
        )  # fmt: skip
    distances = [_largest_gap(_counts(keys), _counts(stream)) for stream in streams]
    yield Figure(
        "reuse law: largest gap between the distributions of arrivals per request",
        float(np.mean(distances)), float(min(distances)), float(max(distances)),
    )  # fmt: skip


def _returns(
    keys: NDArray[np.int64], seconds: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return, per gap: earlier arrivals of the key, seconds, False if censored by the end."""
    last: dict[int, float] = {}
    seen: Counter[int] = Counter()
    rows: list[tuple[int, float, bool]] = []
    for key, at in zip(keys.tolist(), seconds.tolist(), strict=True):
        if key in last:
            rows.append((seen[key], at - last[key], True))
        seen[key] += 1
        last[key] = at
    rows += [(seen[key], float(seconds[-1]) - at, False) for key, at in last.items()]
    counts, gaps, back = zip(*rows, strict=True)
    # The trace's clock ticks every 3 s, so a gap of zero means "within one tick".
    return np.array(counts, float), np.maximum(np.array(gaps, float), 0.1), np.array(back, bool)


def _maximum_likelihood(
    seen: NDArray[np.float64], gaps: NDArray[np.float64], back: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the maximum-likelihood a, b, mean and sd of the log-gap, with standard errors."""

    def loss(p: NDArray[np.float64]) -> float:
        a, b, mean, sd = p
        if min(a, b, sd) <= 0:
            return np.inf
        chance = (a + seen - 1) / (a + b + seen - 1)
        z = (np.log(gaps) - mean) / sd
        density = stats.norm.logpdf(z[back]) - np.log(sd * gaps[back])
        never = np.log1p(-chance[~back] * stats.norm.cdf(z[~back]))
        return -float((np.log(chance[back]) + density).sum() + never.sum())

    found = optimize.minimize(
        loss, [1.0, 2.0, 5.0, 1.0], method="Nelder-Mead",
        options={"xatol": 1e-6, "fatol": 1e-6, "maxiter": 5000},
    )  # fmt: skip
    best = np.asarray(found.x, dtype=np.float64)
    return best, np.sqrt(np.diag(np.linalg.inv(_hessian(loss, best))))


def _log_likelihood(
    gap_law: Any,
    seen: NDArray[np.float64],
    gaps: NDArray[np.float64],
    back: NDArray[np.bool_],
) -> float:
    """Return the maximum log-likelihood with gaps of a two-parameter law (shape and scale)."""

    def loss(logs: NDArray[np.float64]) -> float:
        a, b, shape, scale = np.exp(logs)
        chance = (a + seen - 1) / (a + b + seen - 1)
        density = gap_law.logpdf(gaps[back], shape, scale=scale)
        never = np.log1p(-chance[~back] * gap_law.cdf(gaps[~back], shape, scale=scale))
        return -float((np.log(chance[back]) + density).sum() + never.sum())

    start = np.log([1.2, 2.5, 1.0, 150.0])
    options = {"xatol": 1e-5, "fatol": 1e-4, "maxiter": 4000, "maxfev": 4000}
    return -float(optimize.minimize(loss, start, method="Nelder-Mead", options=options).fun)


def _hessian(
    loss: Callable[[NDArray[np.float64]], float], at: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Second differences of a smooth function."""
    steps = np.diag(1e-3 * np.abs(at))
    hessian = np.empty((len(at), len(at)))
    for i, u in enumerate(steps):
        for j, v in enumerate(steps):
            mixed = loss(at + u + v) - loss(at + u - v) - loss(at - u + v) + loss(at - u - v)
            hessian[i, j] = mixed / (4 * u[i] * v[j])
    return hessian


def _lru_hit_rate(stream: Sequence[int], size: int) -> float:
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in stream:
        if key in held:
            hits += 1
            held.move_to_end(key)
        else:
            held[key] = None
            if len(held) > size:
                held.popitem(last=False)
    return hits / len(stream)


def _counts(stream: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(stream, return_counts=True)[1]


def _largest_gap(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    levels = np.arange(1, max(one.max(), other.max()) + 1)
    cdfs = [np.searchsorted(np.sort(x), levels, "right") / len(x) for x in (one, other)]
    return float(np.abs(cdfs[0] - cdfs[1]).max())


# Load --------------------------------------------------------------------------------


def _azure_seconds(options: Options) -> NDArray[np.float64]:
    folder = options.folder("azure_llm_trace", AZURE)
    stamps = read_columns(folder, "azure_llm_2023_conv.parquet", ["TIMESTAMP"])["TIMESTAMP"]
    # The last of seven digits is below the resolution of the trace's clock.
    times = np.array([stamp[:26].replace(" ", "T") for stamp in stamps], dtype="datetime64[us]")
    seconds = np.sort((times - times.min()) / np.timedelta64(1, "s"))
    return np.asarray(seconds, dtype=np.float64)


def _load_figures(seconds: NDArray[np.float64]) -> Iterator[Figure]:
    fitted = _fit_load(seconds)
    pairs = ("log_sd", fitted.log_sd, LOAD.log_sd), (
        "correlation_s", fitted.correlation_s, LOAD.correlation_s,
    )  # fmt: skip
    for name, value, constant in pairs:
        yield Figure(
            f"load law: {name}, refitted", value,
            goal="shipped constant within 1 %", holds=abs(constant / value - 1) < 0.01,
            peers={"shipped": constant},
        )  # fmt: skip
    drawn = [
        arrival_times(len(seconds), np.random.default_rng(seed), duration_s=float(seconds[-1]))
        for seed in range(STREAMS)
    ]
    for window_s in WINDOWS_S:
        factors = [_fano(times, window_s, float(seconds[-1])) for times in drawn]
        yield Figure(
            f"load law: Fano factor of counts per {window_s:g} s, drawn streams",
            float(np.mean(factors)), float(min(factors)), float(max(factors)),
            peers={"trace": _fano(seconds, window_s, float(seconds[-1]))},
        )  # fmt: skip


def _fano(seconds: NDArray[np.float64], window_s: float, end_s: float) -> float:
    counts = np.histogram(seconds, np.arange(0.0, end_s, window_s))[0]
    return float(counts.var(ddof=1) / counts.mean())


def _fit_load(seconds: NDArray[np.float64]) -> LoadLaw:
    """Fit the load law by least squares on the logs of the Fano factors.

    The variance of a window's mean rate is the average covariance within it. Slower variation than
    the trace is invisible, so the same average over the whole trace is subtracted.
    """
    end_s = float(seconds[-1])
    rate = len(seconds) / end_s
    seen = np.array([_fano(seconds, window_s, end_s) for window_s in WINDOWS_S])

    def average_covariance(span_s: float, log_sd: float, correlation_s: float) -> float:
        lag = np.linspace(0.0, span_s, 2001)
        covariance = np.expm1(log_sd**2 * np.exp(-lag / correlation_s))
        return float(np.trapezoid((span_s - lag) * covariance, lag) * 2.0 / span_s**2)

    def loss(logs: NDArray[np.float64]) -> float:
        sd, tau = np.exp(logs)
        slow = average_covariance(end_s, sd, tau)
        model = [1 + rate * w * (average_covariance(w, sd, tau) - slow) for w in WINDOWS_S]
        return float(((np.log(np.maximum(model, 1e-9)) - np.log(seen)) ** 2).sum())

    found = optimize.minimize(loss, np.log([0.2, 300.0]), method="Nelder-Mead")
    log_sd, correlation_s = np.exp(found.x)
    return LoadLaw(float(log_sd), float(correlation_s))
