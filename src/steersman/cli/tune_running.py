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
    reward_of,
    rotating,
    stratified,
    tune,
)
from steersman.systems.rag_tuner.run_folder import json_value
from steersman.systems.rag_tuner.slices import beforehand
from steersman.systems.rag_tuner.verdict import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.systems.rag_tuner import Batch, Recorded, Strategy, Tuned, Verdict
    from steersman.systems.rag_tuner.slices import Beforehand

_SAME = ("recorded", "seed", "held_out", "holdout")
"""What two runs must have alike to tune on the same questions."""
_DRAWN = "drawn by a seed"
_SAMPLED = 100  # configurations, of which it is looked how they differ from the baseline


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
    effect: float = LEAST


def tuned_run(
    recorded: Recorded,
    tuned: Tuned,
    policy: str,
    folder: Path,
    asked: Asked,
    progress: Callable[[Iterable[Any], int], Iterable[Any]],
    say: Callable[[Beforehand], None] = lambda _: None,
) -> Verdict:
    """Return what held-out queries say of what a strategy found.

    Args:
        recorded: Every configuration on every query.
        tuned: Bounds, gates, weights.
        policy: Their text.
        folder: Of the run.
        asked: By whom, how much, on what.
        progress: Shows how far it is.
        say: Told what held-out queries can show, before anything is evaluated.

    Raises:
        DataError: The folder holds another run, or one that was judged after fewer evaluations, or
            that another process goes on with; or the run that this one comes after was of other
            questions; or the holdout judged another.
        InputError: No configuration holds the gates.
    """
    run, manifest = RunFolder(folder), _manifest(recorded, asked)
    # Whatever refuses, refuses before anything is written.
    run.check(manifest, policy)
    split = split_of(recorded, asked.seed, asked.held_out, asked.holdout)
    holdout = _Holding.of(recorded, split, run.identifier(manifest, policy), asked)
    holdout.check()
    strategy = build_strategy(asked.strategy, tuned, queries=len(recorded), seed=asked.seed)
    if asked.after is not None:
        retell(strategy, _paid(asked.after, manifest), tuned, evaluator=recorded)
    _check_recorded(recorded, tuned, asked.baseline)
    say(_beforehand(recorded, tuned, split, asked))
    run.begin(manifest, policy)
    with run.owned():
        _tune_to_the_end(run, recorded, tuned, strategy, split, asked, progress)
        reused = holdout.use()
        found, base = (
            recorded.evaluate(one, split.held_out) for one in (strategy.recommend(), asked.baseline)
        )
        verdict = judge(found, base, tuned)
        run.finish(verdict, reused=reused)
    return verdict


def _check_recorded(recorded: Recorded, tuned: Tuned, baseline: Configuration) -> None:
    """Refuse to tune over what was not recorded: it would be asked for sooner or later."""
    for one in (baseline, *tuned.space.all):
        if not recorded.holds(one):
            recorded.evaluate(one, np.arange(1))  # which says what to do


def _beforehand(recorded: Recorded, tuned: Tuned, split: Split, asked: Asked) -> Beforehand:
    """Return what held-out queries can show, by how others differ on those that are tuned on."""

    def rewards(one: Configuration) -> NDArray[np.float64]:
        return reward_of(recorded.evaluate(one, split.tuning), tuned).per_query

    base = rewards(asked.baseline)
    tried = list(tuned.space.all)
    some = tried[:: max(1, len(tried) // _SAMPLED)]
    return beforehand([rewards(one) - base for one in some], len(split.held_out), asked.effect)


def _tune_to_the_end(
    run: RunFolder,
    recorded: Recorded,
    tuned: Tuned,
    strategy: Strategy,
    split: Split,
    asked: Asked,
    progress: Callable[[Iterable[Any], int], Iterable[Any]],
) -> None:
    """Evaluate as often as was asked for, what was evaluated before among it."""
    if run.judged_after not in {None, asked.evaluations}:
        raise DataError(
            f"{run.folder} was judged after {run.judged_after} evaluations, and held-out queries "
            "judge once; begin another run with another --seed, or ask for as many evaluations"
        )
    slices = rotating(split.tuning, asked.size, np.random.default_rng([asked.seed, 6]))
    known = run.batches()[: asked.evaluations]
    told = tune(
        strategy, recorded, tuned, slices,
        evaluations=asked.evaluations, seed=asked.seed, known=known,
    )  # fmt: skip
    for one in progress(told, asked.evaluations):
        if one.number > len(known):
            run.append(one)


def _paid(earlier: Path, manifest: dict[str, Any]) -> list[Batch]:
    """Return what an earlier run evaluated; none of it is of questions that judge this one."""
    of, own = RunFolder(earlier).manifest(), json_value(manifest)
    differs = [name for name in _SAME if of.get(name) != own.get(name)]
    if differs:
        raise DataError(
            f"{earlier} differs in {', '.join(differs)}, so that it may have seen questions that "
            "judge this run; name one of the same recording, --seed and --held-out"
        )
    return RunFolder(earlier).batches()


@dataclass(frozen=True)
class _Holding:
    """The held-out queries of a run, and the record of whom they judged."""

    holdout: Holdout | None
    data: str
    name: str
    by: str
    once: bool

    @classmethod
    def of(cls, recorded: Recorded, split: Split, run: str, asked: Asked) -> _Holding:
        """Return the holding; `run` names what is judged."""
        ids = sorted(recorded.queries[place] for place in split.held_out)
        return cls(
            None if asked.holdouts is None else Holdout(asked.holdouts),
            # Of the questions and not of the recording: recorded again, they are the same ones.
            hashlib.sha256(json.dumps([recorded.collection, ids]).encode()).hexdigest(),
            asked.holdout or _DRAWN,
            f"the run {run} after {asked.evaluations} evaluations",
            asked.holdout is not None,
        )

    def check(self) -> None:
        """Refuse a holdout that judged another run, without writing anything."""
        if self.holdout is not None and self.once:
            self.holdout.check(self.data, self.name, self.by)

    def use(self) -> str:
        """Write down that the held-out queries judge this run, before they do.

        A holdout that judged another run is refused. Of queries that were drawn it is told: they
        are the same for each run with this seed, so that one after the other can be tried on them.
        """
        if self.holdout is None:
            return ""
        first = self.holdout.used(self.data, self.name)
        if self.once or first is None or first.by == self.by:
            self.holdout.use(self.data, self.name, self.by, at=datetime.now(UTC))
            return ""
        return (
            f"these held-out queries judged {first.by} before, on {first.at}: if that verdict led "
            "to this run, this one is too good to believe; --holdout names queries that judge once"
        )


def split_of(recorded: Recorded, seed: int, held_out: float, holdout: str | None = None) -> Split:
    """Return which queries are tuned on, and which judge.

    Args:
        recorded: All of them.
        seed: Of the draw.
        held_out: Share of those that judge.
        holdout: The split that judges instead.

    Raises:
        DataError: There is no such split, nothing beside it, or a question on both sides.
    """
    if holdout is not None:
        judges = np.array([split == holdout for split in recorded.splits])
        if judges.all() or not judges.any():
            known = ", ".join(map(repr, sorted(set(recorded.splits))))
            raise DataError(
                f"the recording of {recorded.collection} has the splits {known}; --holdout names "
                "one of two or more"
            )
        return _apart(recorded, Split(np.flatnonzero(~judges), np.flatnonzero(judges)))
    drawn = stratified(recorded.categories, np.random.default_rng([seed, 5]), held_out)
    return _apart(recorded, drawn)


def _apart(recorded: Recorded, split: Split) -> Split:
    """Refuse a split with a question on two sides; near repeats were left out when recording."""
    tuning, judging = (
        {recorded.queries[place] for place in side} for side in (split.tuning, split.held_out)
    )
    both = sorted(tuning & judging)
    if both:
        raise DataError(
            f"{recorded.collection}: {len(both)} questions stand on both sides of the split, such "
            f"as {both[0]!r:.80}; record it again with each question once"
        )
    return split


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
