"""False promotions and rollbacks under peeking; power, detection time and forecasts.

Seeded rollouts run through the real ``judge()`` with the default guardrails (five) and split of
alpha: 40 looks, one after every 50 units of each arm, 2,000 units per arm. Each row has 2,000
rollouts (``--quick``: 200). The peer is a z test on decisions at the two-sided 5 % level, with as
many looks. The last figures break a candidate while it serves, with a real service, controller,
Prometheus and Alertmanager (`rollout_fault`; ``tools/prometheus`` installs the last two).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from benchmarks import rollout_fault
from benchmarks.report import Figure, Options, command
from benchmarks.rollout_worlds import (
    LOOKS,
    UNITS_PER_DAY,
    UNITS_PER_LOOK,
    DrawnRuns,
    Metric,
    Run,
    default_plan,
    draw,
    metrics,
    rollouts,
)
from steersman.errors import DataError
from steersman.rollouts.forecast import forecast
from steersman.stats import achieved_power, sequential_sample_ratio_test

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from steersman.rollouts.plan import RolloutPlan

_CHUNK = 100
_Z = 1.959963984540054
_PEER = "z test on decisions"
_PER_UNIT = "z test on units"


class _Endings(NamedTuple):
    """Ends of all rollouts of one world, and alarms of naive tests at any look."""

    runs: list[Run]
    better: float
    worse: float
    units_better: float
    units_worse: float

    def share(self, end: str, units: int = LOOKS * UNITS_PER_LOOK * 2) -> int:
        """Return the share with a given end within a number of candidate units."""
        return sum(run.end == end and run.units <= units for run in self.runs)


def run(options: Options) -> Iterator[Figure]:
    """Yield every figure."""
    runs = 200 if options.quick else 2000
    plan = default_plan()
    yield from _null(plan, runs)
    yield from _effects(plan, runs)
    yield from _other_harm(plan, runs // 4)
    yield from _non_inferior(runs // 2)
    yield from _sample_ratio(runs)
    yield from rollout_fault.figures(options)


def _null(plan: RolloutPlan, runs: int) -> Iterator[Figure]:
    """Yield figures of candidates without effect: an end before the last look is a false alarm."""
    every: list[_Endings] = []
    for correlation in (0.0, 0.05, 0.1, 0.2):
        reward = Metric("reward", 0.5, correlation=correlation)
        every.append(_roll(plan, metrics(reward=reward), runs // 4, seed=len(every)))
    ends = [run for seen in every for run in seen.runs]
    naive = {
        "promoted": (np.mean([seen.better for seen in every]), every[-1].better),
        "rolled_back": (np.mean([seen.worse for seen in every]), every[-1].worse),
    }
    words = {"promoted": "false promotions", "rolled_back": "false roll-backs"}
    said = "1 to 30 decisions a unit, correlation 0 to .2"
    for end, word in words.items():
        peers = {
            _PEER: float(naive[end][0]),
            f"{_PEER}, correlation .2": naive[end][1],
            _PER_UNIT: float(
                np.mean([s.units_better if end == "promoted" else s.units_worse for s in every])
            ),
        }
        count = sum(run.end == end for run in ends)
        yield _share(f"{word}: {said}", count, len(ends), goal=0.05, peers=peers)
        worst = every[-1].share(end)
        yield _share(f"{word}: correlation .2", worst, len(every[-1].runs), goal=0.05)
    told = sum("guardrail" in run.incidents for run in ends)
    yield _share("false holds by a guardrail that may only hold", told, len(ends), goal=0.05)
    told = sum(bool(run.incidents & {"sample_ratio", "missing_values"}) for run in ends)
    yield _share("false stops for arms that cannot be compared", told, len(ends), goal=0.05)


def _effects(plan: RolloutPlan, runs: int) -> Iterator[Figure]:
    """Yield figures of candidates with a better or worse reward."""
    for effect in (0.03, 0.05):
        seen = _roll(plan, metrics(reward=Metric("reward", 0.5, effect, 0.25)), runs, seed=10)
        planned = LOOKS * UNITS_PER_LOOK
        if effect == 0.03:
            yield _share(
                f"power: +{effect:g} (sd .25), {planned} units of each arm",
                seen.share("promoted"),
                runs,
                goal=0.8,
                at_least=True,
                peers={"one planned t test": achieved_power(effect, 0.25, planned)},
            )
        yield from _forecast(plan, seen, effect)
    seen = _roll(plan, metrics(reward=Metric("reward", 0.5, -0.08, 0.25)), runs, seed=12)
    name = "worse by .08 (sd .25): rolled back within 500 of its own units"
    yield _share(name, seen.share("rolled_back", 500), runs, goal=0.95, at_least=True)
    yield _own_units("worse by .08 (sd .25)", seen)
    found = forecast(plan, 0.25, 0.08, UNITS_PER_DAY).harm_units
    if found is None:
        message = "a loss of .08 would never be rolled back under this plan"
        raise DataError(message)
    within = seen.share("rolled_back", found + UNITS_PER_LOOK)
    name = f"forecast: {found} units until a loss of .08 is rolled back"
    yield _share(name, within, runs, goal=0.95, at_least=True)


def _forecast(plan: RolloutPlan, seen: _Endings, effect: float) -> Iterator[Figure]:
    """Yield forecast units and days with those of the rollouts."""
    world = metrics(reward=Metric("reward", 0.5, effect, 0.25))
    spreads = {metric.name: metric.unit_sd for metric in world[1:]}
    found = forecast(plan, 0.25, effect, UNITS_PER_DAY, spreads=spreads)
    look = -(-found.units // UNITS_PER_LOOK)
    shown = sum(run.end == "promoted" and run.look <= look for run in seen.runs)
    name = f"forecast for +{effect:g}: {found.units} units of each arm; promoted by then"
    yield _share(name, shown, len(seen.runs), goal=0.8, at_least=True)
    # The last stage has no looks here: it takes its minimum of one day.
    days = [run.days + 1.0 if run.end == "promoted" else np.inf for run in seen.runs]
    taken = float(np.quantile(days, 0.8))
    off = abs(taken / found.days - 1.0)
    yield Figure(
        f"forecast for +{effect:g}: days until 80 % have taken over",
        found.days,
        unit="days",
        goal="within 25 % of simulated",
        holds=bool(off <= 0.25),
        peers={"simulated": taken},
    )


def _other_harm(plan: RolloutPlan, runs: int) -> Iterator[Figure]:
    """Yield figures of harm in guardrails other than the reward."""
    worlds = {
        "errors .005 to .03": metrics(reward=Metric("reward", 0.5, sd=0.25), errors=0.025),
        "success .7 to .6": metrics(reward=Metric("reward", 0.5, sd=0.25), success=-0.1),
        "late requests .05 to .15": metrics(reward=Metric("reward", 0.5, sd=0.25), latency=0.1),
    }
    for seed, (said, world) in enumerate(worlds.items(), 20):
        seen = _roll(plan, world, runs, seed=seed)
        yield _share(f"{said}: rolled back", seen.share("rolled_back"), runs)
        yield _own_units(said, seen)


def _non_inferior(runs: int) -> Iterator[Figure]:
    """Yield figures of a non-inferiority objective with margin .03."""
    plan = default_plan(objective="non_inferior", objective_margin=0.03)
    said = "objective non-inferior, margin .03"
    same = _roll(plan, metrics(reward=Metric("reward", 0.5, 0.0, 0.25)), runs, seed=30)
    yield _share(f"{said}: promoted when equal", same.share("promoted"), runs)
    worse = _roll(plan, metrics(reward=Metric("reward", 0.5, -0.03, 0.25)), runs, seed=31)
    name = f"{said}: promoted when worse by the margin"
    yield _share(name, worse.share("promoted"), runs, goal=0.05)


def _sample_ratio(runs: int) -> Iterator[Figure]:
    """Yield figures of the sample ratio: false alarms, and time to detect lost units."""
    rng = np.random.default_rng(40)
    for lost, said in ((0.0, "arms split evenly"), (0.1, "a tenth of the candidate's units lost")):
        steps = rng.binomial(2 * UNITS_PER_LOOK, 0.5, (runs, 2 * LOOKS))
        candidate = rng.binomial(steps, 1.0 - lost).cumsum(axis=1)
        control = (2 * UNITS_PER_LOOK - steps).cumsum(axis=1)
        ours = np.array(
            [
                [sequential_sample_ratio_test([c, k]).mismatch for c, k in zip(*rows, strict=True)]
                for rows in zip(candidate.tolist(), control.tolist(), strict=True)
            ]
        )
        z = (candidate - control) / np.sqrt(candidate + control)
        theirs = 2.0 * stats.norm.sf(np.abs(z)) < 0.001
        name = f"sample ratio, {said}: stopped within {2 * LOOKS} looks"
        count = int(ours.any(axis=1).sum())
        peers = {"chi-square at each look": float(theirs.any(axis=1).mean())}
        if lost == 0.0:
            # 2,000 runs cannot separate a share of 0.001 from 0.002: its interval is judged.
            yield _share(name, count, runs, peers=peers, within=0.001)
            continue
        yield _share(name, count, runs, peers=peers)
        first = np.where(ours.any(axis=1), ours.argmax(axis=1) + 1.0, np.inf)
        units = np.median(first) * UNITS_PER_LOOK
        yield Figure(f"sample ratio, {said}: median units of an arm until stopped", float(units))


def _roll(plan: RolloutPlan, world: Sequence[Metric], runs: int, *, seed: int) -> _Endings:
    rng = np.random.default_rng([4, seed])
    found: list[Run] = []
    alarms: list[tuple[NDArray[np.bool_], ...]] = []
    for start in range(0, runs, _CHUNK):
        drawn = draw(world, rng, min(_CHUNK, runs - start))
        found += rollouts(plan, drawn)
        alarms.append((*_naive(drawn), *_naive_units(drawn)))
    rates = [float(np.concatenate(column).mean()) for column in zip(*alarms, strict=True)]
    return _Endings(found, *rates)


def _naive(drawn: DrawnRuns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the runs that a z test on decisions calls better, and worse, at any look."""
    if "reward" not in drawn.sums:
        none = np.zeros(len(drawn.arrived), dtype=bool)
        return none, none
    means = drawn.sums["reward"] / drawn.decisions
    error = np.sqrt((means * (1.0 - means) / drawn.decisions).sum(axis=2))
    z = (means[:, :, 0] - means[:, :, 1]) / error
    return (z > _Z).any(axis=1), (z < -_Z).any(axis=1)


def _naive_units(drawn: DrawnRuns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the same for a z test on units with peeking."""
    means, variances = drawn.moments["reward"]
    z = (means[:, :, 0] - means[:, :, 1]) / np.sqrt((variances / drawn.arrived).sum(axis=2))
    return (z > _Z).any(axis=1), (z < -_Z).any(axis=1)


def _share(
    name: str,
    count: int,
    runs: int,
    *,
    goal: float | None = None,
    at_least: bool = False,
    within: float | None = None,
    peers: dict[str, float] | None = None,
) -> Figure:
    """Return a share of runs with its exact interval (Clopper-Pearson)."""
    ends = stats.binomtest(count, runs).proportion_ci()
    value = count / runs
    holds = None if goal is None else (value >= goal if at_least else value <= goal)
    said: str | None = None if goal is None else f"{'≥' if at_least else '≤'} {goal:g}"
    if within is not None:
        said, holds = f"≤ {within:g} within its interval", bool(ends.low <= within)
    return Figure(name, value, ends.low, ends.high, goal=said, holds=holds, peers=peers or {})


def _own_units(said: str, seen: _Endings) -> Figure:
    units = [run.units for run in seen.runs if run.end == "rolled_back"]
    low, value, high = np.quantile(units, [0.05, 0.5, 0.95]) if units else (np.nan,) * 3
    name = f"{said}: its own units until then, median and 5 to 95 %"
    return Figure(name, float(value), float(low), float(high), unit="units")


if __name__ == "__main__":
    command("rollout", run, doc=__doc__)
