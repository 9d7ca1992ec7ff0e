"""What `steersman tune run` does: splits, tunes, judges once, and writes it down."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError
from steersman.systems.rag_tuner import (
    Configuration,
    Holdout,
    RunFolder,
    Split,
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

    from steersman.systems.rag_tuner import Batch, Recorded, Tuned, Verdict

_SAME = ("recorded", "seed", "held_out", "holdout")
"""What two runs must have alike to tune on the same questions."""
_DRAWN = "drawn by a seed"


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
    holdout: str | None = None
    holdouts: Path | None = None


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
        DataError: The folder holds another run, or one that was judged after fewer evaluations, or
            that another process goes on with; or the run that this one comes after was of other
            questions; or the holdout judged another.
        InputError: No configuration holds the gates.
    """
    run = RunFolder(folder)
    run.begin(_manifest(recorded, asked), policy)
    with run.owned():
        return _gone_on(run, recorded, tuned, asked, progress)


def _gone_on(
    run: RunFolder,
    recorded: Recorded,
    tuned: Tuned,
    asked: Asked,
    progress: Callable[[Iterable[Any], int], Iterable[Any]],
) -> Verdict:
    """Tune to the end, and judge."""
    if run.judged_after not in {None, asked.evaluations}:
        raise DataError(
            f"{run.folder} was judged after {run.judged_after} evaluations, and held-out queries "
            "judge once; begin another run with another --seed, or ask for as many evaluations"
        )
    split = split_of(recorded, asked.seed, asked.held_out, asked.holdout)
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
    reused = _take_the_last_word(recorded, split, run, asked)
    found, base = (
        recorded.evaluate(one, split.held_out) for one in (strategy.recommend(), asked.baseline)
    )
    verdict = judge(found, base, tuned)
    run.finish(verdict, reused=reused)
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


def _take_the_last_word(recorded: Recorded, split: Split, run: RunFolder, asked: Asked) -> str:
    """Write down that the held-out queries judge this run, before they do.

    A holdout that judged another run is refused. Of queries that were drawn it is told: they are
    the same for each run with this seed, so that one after the other can be tried on them.
    """
    if asked.holdouts is None:
        return ""
    ids = sorted(recorded.queries[place] for place in split.held_out)
    # Of the questions and not of the recording: recorded again, they are the same questions.
    data = hashlib.sha256(json.dumps([recorded.collection, ids]).encode()).hexdigest()
    what = hashlib.sha256((run.folder / "manifest.json").read_bytes()).hexdigest()[:16]
    by = f"the run {run.folder.name} ({what}) after {asked.evaluations} evaluations"
    holdout, name = Holdout(asked.holdouts), asked.holdout or _DRAWN
    first = holdout.used(data, name)
    if asked.holdout is not None or first is None or first.by == by:
        holdout.use(data, name, by, at=datetime.now(UTC))
        return ""
    return (
        f"these held-out queries judged {first.by} before, on {first.at}: if that verdict led to "
        "this run, this one is too good to believe; --holdout names queries that judge once"
    )


def split_of(recorded: Recorded, seed: int, held_out: float, holdout: str | None = None) -> Split:
    """Return which queries are tuned on, and which judge.

    Args:
        recorded: All of them.
        seed: Of the draw.
        held_out: Share of those that judge.
        holdout: The split that judges instead.

    Raises:
        DataError: There is no such split, or nothing beside it.
    """
    if holdout is not None:
        judges = np.array([split == holdout for split in recorded.splits])
        if judges.all() or not judges.any():
            known = ", ".join(map(repr, sorted(set(recorded.splits))))
            raise DataError(
                f"the recording of {recorded.collection} has the splits {known}; --holdout names "
                "one of two or more"
            )
        return Split(np.flatnonzero(~judges), np.flatnonzero(judges))
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
        **({} if asked.holdout is None else {"holdout": asked.holdout}),
        "baseline": asked.baseline.parts(),
    }


def _hash_of(earlier: Path) -> str:
    file = earlier / "episodes.jsonl"
    if not file.is_file():
        raise DataError(f"{earlier} holds no evaluations; name a folder of `steersman tune run`")
    return hashlib.sha256(file.read_bytes()).hexdigest()
