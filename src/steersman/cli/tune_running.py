"""What `steersman tune run` does: splits, tunes, judges once, and writes it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError
from steersman.systems.rag_tuner import (
    Configuration,
    RunFolder,
    build_strategy,
    judge,
    rotating,
    stratified,
    tune,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from steersman.systems.rag_tuner import Recorded, Split, Tuned, Verdict


@dataclass(frozen=True)
class Asked:
    """What the command was told."""

    strategy: str
    evaluations: int
    size: int
    held_out: float
    seed: int
    baseline: Configuration


def tuned_run(
    recorded: Recorded,
    tuned: Tuned,
    policy: str,
    folder: Path,
    asked: Asked,
    progress: Callable[[Iterable[Any], int], Iterable[Any]],
) -> Verdict:
    """Return what held-out queries say of what a strategy found.

    Args:
        recorded: Every configuration on every query.
        tuned: Bounds, gates, weights.
        policy: Their text.
        folder: Of the run.
        asked: By whom, how much, on what.
        progress: Shows how far it is.

    Raises:
        DataError: The folder holds another run, or one that was judged after fewer evaluations.
        InputError: No configuration holds the gates.
    """
    run = RunFolder(folder)
    run.begin(_manifest(recorded, asked), policy)
    if run.judged_after not in {None, asked.evaluations}:
        raise DataError(
            f"{folder} was judged after {run.judged_after} evaluations, and held-out queries judge "
            "once; begin another run with another --seed, or ask for as many evaluations"
        )
    split = split_of(recorded, asked.seed, asked.held_out)
    strategy = build_strategy(asked.strategy, tuned, queries=len(recorded), seed=asked.seed)
    slices = rotating(split.tuning, asked.size, np.random.default_rng([asked.seed, 6]))
    known = run.batches()[: asked.evaluations]
    told = tune(
        strategy, recorded, tuned, slices,
        evaluations=asked.evaluations, seed=asked.seed, known=known,
    )  # fmt: skip
    for one in progress(told, asked.evaluations):
        if one.number > len(known):
            run.append(one)
    found, base = (
        recorded.evaluate(one, split.held_out) for one in (strategy.recommend(), asked.baseline)
    )
    verdict = judge(found, base, tuned)
    run.finish(verdict)
    return verdict


def split_of(recorded: Recorded, seed: int, held_out: float) -> Split:
    """Return which queries are tuned on, and which judge.

    Args:
        recorded: All of them.
        seed: Of the draw.
        held_out: Share of those that judge.
    """
    return stratified(recorded.categories, np.random.default_rng([seed, 5]), held_out)


def _manifest(recorded: Recorded, asked: Asked) -> dict[str, Any]:
    """What another run would differ in; more evaluations only go on."""
    return {
        "collection": recorded.collection,
        "queries": len(recorded),
        "recorded": {**recorded.about, "sha256": recorded.sha256},
        "strategy": asked.strategy,
        "slice": asked.size,
        "held_out": asked.held_out,
        "seed": asked.seed,
        "baseline": asked.baseline.parts(),
    }
