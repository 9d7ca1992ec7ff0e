"""Arrival times and repeated requests: laws fitted to two public production traces.

**Repeats** (:class:`ReuseLaw`). In the Mooncake conversation trace (12,031 requests,
59 minutes) every request lists the hashes of its 512-token prefix blocks. Block 0 is one system
prompt shared by all; block 1 identifies the subject and serves as the key here. 7,373 keys make
12,031 arrivals, so .387 of the arrivals repeat a key (.41 after the first ten minutes).
The law: a key with m arrivals arrives again with probability (a + m - 1) / (a + b + m - 1), after a
log-normal gap. First arrivals are uniform over the hour; later arrivals are censored.
The numbers of arrivals per key are then Waring (beta-geometric) distributed.
Maximum likelihood with censored gaps gives a = 1.24, b = 2.54, a median gap of 142 s and a log-sd
of 1.03; Weibull, Lomax and log-logistic gaps fit worse (18 to 418 units of log-likelihood).
Streams drawn at the trace's size have its LRU hit rates within .015 (caches of 100 to 1,600 entries
and unbounded), and its distribution of arrivals per key within .016.

**Load** (:class:`LoadLaw`). In the Azure conversation trace of 2023 (19,366 requests,
58 minutes) counts per minute vary 16 times more than Poisson counts. The law: a Cox process whose
log-rate is an Ornstein-Uhlenbeck process; its two parameters are fitted to the Fano factors of
windows of 1 to 300 s.

``python -m benchmarks.cache`` refits both laws from the traces, checks the constants below against
the refit, and states the goodness of fit.

Limits: a repeated block 1 means that a conversation continues or that a long prompt is shared. Only
.010 of the arrivals repeat the *same* full prompt. The law describes the return of a subject; we
assume that the same request returns, which favours exact caches. No public trace has repeated
texts. One hour shows no daily rhythm and no gap above an hour, and it starts cold.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LOAD",
    "REUSE",
    "LoadLaw",
    "ReuseLaw",
    "arrival_times",
    "arrivals",
    "expected_arrivals",
    "guardian_states",
]

GUARDIAN_STATES = ("normal", "brownout", "emergency")


@dataclass(frozen=True, slots=True)
class ReuseLaw:
    """Law of repeated requests: probability and gap.

    Args:
        a: first shape of the probability of a repeat, > 0; each arrival adds one to it.
        b: second shape, > 0; the mean number of arrivals is finite for b > 1.
        gap_log_mean: mean of the log of the gap in seconds.
        gap_log_sd: standard deviation of that log, > 0.
        horizon_s: observed time, seconds, > 0.
        arrivals_per_request: arrivals over distinct keys in the trace, >= 1.
    """

    a: float
    b: float
    gap_log_mean: float
    gap_log_sd: float
    horizon_s: float
    arrivals_per_request: float

    def __post_init__(self) -> None:
        _require_positive(a=self.a, b=self.b, gap_log_sd=self.gap_log_sd, horizon_s=self.horizon_s)

    def chance(self, seen: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return the probability that a request with ``seen`` arrivals arrives again.

        Args:
            seen: any shape, >= 1.

        >>> REUSE.chance(np.array([1, 2, 10])).round(3)
        array([0.328, 0.469, 0.801])
        """
        seen = np.asarray(seen)
        return np.asarray((self.a + seen - 1) / (self.a + self.b + seen - 1), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class LoadLaw:
    """Law of the arrival rate: exp of an Ornstein-Uhlenbeck process with unit mean.

    Args:
        log_sd: stationary standard deviation of the log-rate, >= 0; 0 is a Poisson process.
        correlation_s: seconds after which the autocorrelation of the log-rate is 1/e, > 0.
    """

    log_sd: float
    correlation_s: float

    def __post_init__(self) -> None:
        _require_positive(correlation_s=self.correlation_s)


def _require_positive(**parameters: float) -> None:
    for name, value in parameters.items():
        if not value > 0:
            message = f"{name} of the law is {value}; allowed: above 0."
            raise InputError(message)


REUSE = ReuseLaw(
    a=1.24,
    b=2.54,
    gap_log_mean=4.958,
    gap_log_sd=1.031,
    horizon_s=3537.0,
    arrivals_per_request=12031 / 7373,
)
LOAD = LoadLaw(log_sd=0.246, correlation_s=331.0)


def expected_arrivals(n_requests: int, *, law: ReuseLaw = REUSE) -> int:
    """Return the expected number of arrivals of ``n_requests`` distinct requests.

    Args:
        n_requests: distinct requests, >= 0.

    >>> expected_arrivals(1311)
    2139
    """
    return round(n_requests * law.arrivals_per_request)


def arrivals(
    n_requests: int, n_arrivals: int, rng: np.random.Generator, *, law: ReuseLaw = REUSE
) -> NDArray[np.int64]:
    """Return the request of each arrival: every request at least once, then repeats.

    First arrivals are in random order, uniform over the law's hour. Then each request repeats by
    the law. To get exactly ``n_arrivals``, surplus repeats are dropped at random; if there are too
    few, more independent visitors ask the same requests. Far above :func:`expected_arrivals`, cache
    hit rates are those of a busier service than in the trace.

    Args:
        n_requests: number of distinct requests, >= 1.
        n_arrivals: length of the stream, >= ``n_requests``.

    Returns:
        Request indexes, shape (n_arrivals,), int64, in order of arrival.

    Raises:
        InputError: ``n_requests`` is below 1 or ``n_arrivals`` below ``n_requests``.

    >>> arrivals(4, 8, np.random.default_rng(3))
    array([3, 2, 2, 2, 2, 1, 0, 0])
    """
    if n_requests < 1:
        message = f"n_requests is {n_requests}; allowed: 1 or more. Pass some requests."
        raise InputError(message)
    if n_arrivals < n_requests:
        message = (
            f"n_arrivals is {n_arrivals}; allowed: {n_requests} (one for each request) or more. "
            "Ask for a longer stream or pass fewer requests."
        )
        raise InputError(message)
    who = [rng.permutation(n_requests)]
    when = [np.sort(rng.uniform(0.0, law.horizon_s, n_requests))]
    missing = n_arrivals - n_requests
    while missing > 0:
        repeat, at = _repeats(who[0], when[0], rng, law)
        kept = rng.permutation(len(repeat))[:missing]
        who.append(repeat[kept])
        when.append(at[kept])
        missing -= len(kept)
    order = np.argsort(np.concatenate(when), kind="stable")
    return np.concatenate(who)[order].astype(np.int64)


def _repeats(
    who: NDArray[np.int64], first: NDArray[np.float64], rng: np.random.Generator, law: ReuseLaw
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the repeats and their times, for requests with first arrivals at ``first``."""
    everyone: list[NDArray[np.int64]] = []
    times: list[NDArray[np.float64]] = []
    at, seen = first, 1
    while len(who):
        back = rng.random(len(who)) < law.chance(seen)
        at = at + rng.lognormal(law.gap_log_mean, law.gap_log_sd, len(who))
        within = back & (at < law.horizon_s)
        who, at, seen = who[within], at[within], seen + 1
        everyone.append(who)
        times.append(at)
    return np.concatenate(everyone), np.concatenate(times)


def arrival_times(
    n_arrivals: int,
    rng: np.random.Generator,
    *,
    duration_s: float = REUSE.horizon_s,
    law: LoadLaw = LOAD,
) -> NDArray[np.float64]:
    """Return the arrival times in seconds, drawn from the load law.

    Args:
        n_arrivals: number of arrivals, >= 0.
        duration_s: length of the stream, seconds, in (0, 10^7]; default: the hour of the
            reuse law, so that gaps between repeats keep their length in seconds.

    Returns:
        Ascending seconds in [0, duration_s], shape (n_arrivals,), float64.

    Raises:
        InputError: a negative count, or a duration outside its range.

    >>> arrival_times(4, np.random.default_rng(0), duration_s=10.0).round(2)
    array([0.03, 0.34, 8.17, 8.58])
    """
    if n_arrivals < 0:
        message = f"n_arrivals is {n_arrivals}; allowed: 0 or more."
        raise InputError(message)
    if not 0.0 < duration_s <= 1e7:
        message = f"duration_s is {duration_s}; allowed: above 0, up to 1e7 seconds."
        raise InputError(message)
    ticks = np.linspace(0.0, duration_s, int(np.ceil(duration_s)) + 1)
    keep = float(np.exp(-(ticks[1] - ticks[0]) / law.correlation_s))
    shocks = rng.standard_normal(len(ticks) - 1) * np.sqrt(1.0 - keep**2)
    shocks[0] /= np.sqrt(1.0 - keep**2)
    wandering = accumulate(shocks.tolist(), lambda last, shock: shock + keep * last)
    log_rate = law.log_sd * np.fromiter(wandering, np.float64, len(shocks))
    mass = np.concatenate([[0.0], np.cumsum(np.exp(log_rate))])
    return np.interp(np.sort(rng.uniform(0.0, mass[-1], n_arrivals)), mass, ticks)


def guardian_states(
    times_s: NDArray[np.float64],
    *,
    window_s: float = 60.0,
    brownout: float = 1.2,
    emergency: float = 1.5,
) -> list[str]:
    """Return the state of the load guardian at each arrival.

    The guardian divides the arrivals of the past window by the mean rate of the whole stream. It
    reads past arrivals only.

    Args:
        times_s: ascending arrival times, seconds, shape (n,).
        window_s: length of the past window, seconds, > 0.
        brownout: load, in mean rates, from which the state is "brownout", > 0.
        emergency: load from which the state is "emergency", >= ``brownout``.

    Raises:
        InputError: times that descend, or thresholds out of order.

    >>> guardian_states(np.array([0.0, 4.0, 8.0, 8.1, 8.2, 10.0]), window_s=2.0)
    ['normal', 'normal', 'normal', 'emergency', 'emergency', 'emergency']
    """
    times_s = np.asarray(times_s, dtype=np.float64)
    if times_s.ndim != 1 or np.any(np.diff(times_s) < 0):
        raise InputError("times_s must be one ascending row of seconds; sort the arrivals first.")
    if not (window_s > 0 and 0 < brownout <= emergency):
        message = (
            f"window_s {window_s}, brownout {brownout}, emergency {emergency}; allowed: "
            "window_s > 0 and 0 < brownout <= emergency."
        )
        raise InputError(message)
    if len(times_s) == 0 or times_s[-1] == 0.0:
        return ["normal"] * len(times_s)
    recent = np.arange(1, len(times_s) + 1) - np.searchsorted(times_s, times_s - window_s, "right")
    load = recent / (window_s * len(times_s) / times_s[-1])
    level = (load >= brownout).astype(int) + (load >= emergency)
    return [GUARDIAN_STATES[i] for i in level]
