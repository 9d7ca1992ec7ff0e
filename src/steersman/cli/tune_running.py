"""What `steersman tune run` does: splits, tunes, judges once, and writes it down."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError
from steersman.systems.rag_tuner import (
    Configuration,
    RunFolder,
    build_strategy,
    judge,
    retell,
    rotating,
    stratified,
    tune,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from steersman.systems.rag_tuner import Batch, Recorded, Split, Tuned, Verdict

_SAME = ("recorded", "seed", "held_out")
"""What two runs must have alike to tune on the same questions."""


@dataclass(frozen=True)
class Asked:
    """What the command was told."""

    strategy: str
    evaluations: int
    size: int
    held_out: float
    seed: int
    baseline: Configuration
    after: Path | None = None


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
        DataError: The folder holds another run, or one that was judged after fewer evaluations; or
            the run that this one comes after was of other questions.
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
    if asked.after is not None:
        retell(strategy, _paid(asked.after, run.manifest()), tuned, evaluator=recorded)
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


def _paid(earlier: Path, manifest: dict[str, Any]) -> list[Batch]:
    """Return what an earlier run evaluated; none of it is of questions that judge this one."""
    of = RunFolder(earlier).manifest()
    differs = [name for name in _SAME if of.get(name) != manifest.get(name)]
    if differs:
        raise DataError(
            f"{earlier} differs in {', '.join(differs)}, so that it may have seen questions that "
            "judge this run; name one of the same recording, --seed and --held-out"
        )
    return RunFolder(earlier).batches()


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
    after = {} if asked.after is None else {"after": _hash_of(asked.after)}
    return {
        **after,
        "collection": recorded.collection,
        "queries": len(recorded),
        "recorded": {**recorded.about, "sha256": recorded.sha256},
        "strategy": asked.strategy,
        "slice": asked.size,
        "held_out": asked.held_out,
        "seed": asked.seed,
        "baseline": asked.baseline.parts(),
    }


def _hash_of(earlier: Path) -> str:
    file = earlier / "episodes.jsonl"
    if not file.is_file():
        raise DataError(f"{earlier} holds no evaluations; name a folder of `steersman tune run`")
    return hashlib.sha256(file.read_bytes()).hexdigest()
