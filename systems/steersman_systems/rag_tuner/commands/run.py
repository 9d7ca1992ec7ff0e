"""Execution of `steersman tune run`: split, tuning and one final evaluation."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.answerable import answerable
from steersman_systems.rag_tuner.extrapolation import guessed
from steersman_systems.rag_tuner.holdout import Holdout
from steersman_systems.rag_tuner.logged import EvaluationLog
from steersman_systems.rag_tuner.loop import retell, tune
from steersman_systems.rag_tuner.recorded import Recorded
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.run_folder import RunFolder, json_value
from steersman_systems.rag_tuner.slices import (
    ConfigurationSlices,
    Split,
    beforehand,
    rotating,
    stratified,
    temporal,
)
from steersman_systems.rag_tuner.strategies.factory import build_strategy
from steersman_systems.rag_tuner.verdict import LEAST, judged, shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.logged import World
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch
    from steersman_systems.rag_tuner.strategies.base import Strategy
    from steersman_systems.rag_tuner.verdict import Verdict

_SAME = ("recorded", "seed", "held_out", "holdout", "temporal")
"""Settings that two runs must share to tune on the same questions."""
_DRAWN, _LATEST = "drawn by a seed", "the latest"
_SAMPLED = 100  # most configurations that are compared with the baseline


@dataclass(frozen=True)
class RunOptions:
    """Options of `steersman tune run`."""

    strategy: str
    evaluations: int
    size: int
    held_out: float
    seed: int
    baseline: Configuration
    after: Path | None = None
    holdout: str | None = None
    holdouts: Path | None = None
    temporal: bool = False
    effect: float = LEAST


def tuned_run(
    recorded: World,
    tuned: PolicyConfig,
    policy: str,
    folder: Path,
    asked: RunOptions,
    progress: Callable[[Iterable[Any], int], Iterable[Any]],
    say: Callable[[str, str], None] = lambda _name, _said: None,
) -> Verdict:
    """Tune on one part of the queries, and evaluate the result once on the held-out part.

    `policy` is the text of the policy file. `say` receives named lines: before the evaluation, the
    coverage of a log and the power of the held-out queries; after it, candidates outside the log.

    Raises:
        DataError: the folder holds another run, a run that ended after fewer evaluations, or one
            that another process continues; the earlier run used other questions; or the holdout
            set evaluated another run.
        InputError: no configuration passes the gates, an evaluation is not recorded, or a log
            covers too little.
    """
    run, manifest = RunFolder(folder), _manifest(recorded, asked)
    # All checks come before the first write.
    run.check(manifest, policy)
    split = split_of(recorded, asked.seed, asked.held_out, asked.holdout, by_time=asked.temporal)
    holdout = _Holding.of(recorded, split, run.identifier(manifest, policy), asked)
    holdout.check()
    found = answerable(recorded, tuned, split, asked.baseline)
    whole, tuned = tuned, found.tuned
    strategy = build_strategy(asked.strategy, tuned, queries=len(recorded), seed=asked.seed)
    if asked.after is not None:
        retell(strategy, _paid(asked.after, manifest), tuned, evaluator=recorded)
    if found.evaluations is not None:
        say("log", str(found))
    say("beforehand", _beforehand(recorded, tuned, split, asked))
    run.begin(manifest, policy)
    with run.owned():
        _tune_to_the_end(run, recorded, tuned, strategy, split, asked, progress)
        reused = holdout.use()
        verdict = judged(recorded, tuned, split.held_out, strategy.recommend(), asked.baseline)
        run.finish(verdict, reused=reused)
    if isinstance(recorded, EvaluationLog):
        beyond = guessed(recorded, whole, split.tuning, verdict.candidate, seed=asked.seed)
        if beyond is not None:
            say("beyond", str(beyond))
    return verdict


def _beforehand(recorded: World, tuned: PolicyConfig, split: Split, asked: RunOptions) -> str:
    """Return the power of the held-out queries, estimated on the tuning queries."""

    def ahead(one: Configuration) -> NDArray[np.float64]:
        both = shared(recorded, one, asked.baseline, split.tuning)
        mine, base = (
            reward_of(recorded.evaluate(it, both), tuned).per_query for it in (one, asked.baseline)
        )
        return mine - base

    tried = list(tuned.space.all)
    some = tried[:: max(1, len(tried) // _SAMPLED)]
    judges = [len(shared(recorded, one, asked.baseline, split.held_out)) for one in some]
    known = [one for one in some if len(shared(recorded, one, asked.baseline, split.tuning)) > 1]
    talks = [recorded.talks(shared(recorded, one, asked.baseline, split.tuning)) for one in known]
    queries = int(np.median(judges))
    return str(beforehand([ahead(one) for one in known], queries, asked.effect, groups=talks))


def _tune_to_the_end(
    run: RunFolder,
    recorded: World,
    tuned: PolicyConfig,
    strategy: Strategy,
    split: Split,
    asked: RunOptions,
    progress: Callable[[Iterable[Any], int], Iterable[Any]],
) -> None:
    """Make the evaluations that are still missing."""
    if run.judged_after not in {None, asked.evaluations}:
        raise DataError(
            f"{run.folder} has a verdict after {run.judged_after} evaluations, and held-out "
            "queries are used once; start a run with another --seed, or use the same --evaluations"
        )
    slices = _slices(recorded, split, asked)
    known = run.batches()[: asked.evaluations]
    told = tune(
        strategy, recorded, tuned, slices,
        evaluations=asked.evaluations, seed=asked.seed, known=known,
    )  # fmt: skip
    for one in progress(told, asked.evaluations):
        if one.number > len(known):
            run.append(one)


def _slices(
    recorded: World, split: Split, asked: RunOptions
) -> Iterator[NDArray[np.intp]] | Callable[[Configuration], NDArray[np.intp]]:
    if isinstance(recorded, EvaluationLog):
        known = partial(recorded.seen, queries=split.tuning)
        return ConfigurationSlices(known, asked.size, [asked.seed, 6])
    return rotating(split.tuning, asked.size, np.random.default_rng([asked.seed, 6]))


def _paid(earlier: Path, manifest: dict[str, Any]) -> list[Batch]:
    """Return an earlier run's evaluations; none may use held-out queries of this run."""
    of, own = RunFolder(earlier).manifest(), json_value(manifest)
    differs = [name for name in _SAME if of.get(name) != own.get(name)]
    if differs:
        raise DataError(
            f"{earlier} differs in {', '.join(differs)}, so it may have used held-out questions of "
            "this run; name a run with the same recording, --seed and --held-out"
        )
    return RunFolder(earlier).batches()


@dataclass(frozen=True)
class _Holding:
    """The held-out queries of a run, and the record of the runs that they evaluated."""

    holdout: Holdout | None
    data: str
    name: str
    by: str
    once: bool

    @classmethod
    def of(cls, recorded: World, split: Split, run: str, asked: RunOptions) -> _Holding:
        """Return the holding; `run` identifies the run."""
        ids = sorted(recorded.queries[place] for place in split.held_out)
        return cls(
            None if asked.holdouts is None else Holdout(asked.holdouts),
            # A hash of the questions, not of the file: a new recording has the same questions.
            hashlib.sha256(json.dumps([recorded.collection, ids]).encode()).hexdigest(),
            asked.holdout or (_LATEST if asked.temporal else _DRAWN),
            f"the run {run} after {asked.evaluations} evaluations",
            asked.holdout is not None,
        )

    def check(self) -> None:
        """Refuse a holdout set that evaluated another run; write nothing."""
        if self.holdout is not None and self.once:
            self.holdout.check(self.data, self.name, self.by)

    def use(self) -> str:
        """Record the use of the held-out queries, before the evaluation.

        A holdout set that evaluated another run is refused. Random held-out queries only cause a
        warning: all runs with this seed share them, so repeated tries can overfit to them.
        """
        if self.holdout is None:
            return ""
        first = self.holdout.used(self.data, self.name)
        if self.once or first is None or first.by == self.by:
            self.holdout.use(self.data, self.name, self.by, at=datetime.now(UTC))
            return ""
        return (
            f"these held-out queries already evaluated {first.by}, on {first.at}: if that verdict "
            "led to this run, this one is too optimistic; use --holdout for a one-time holdout set"
        )


def split_of(
    recorded: World,
    seed: int,
    held_out: float,
    holdout: str | None = None,
    *,
    by_time: bool = False,
) -> Split:
    """Return the tuning queries and the held-out queries.

    `holdout` names the held-out split; None: a random share, or the latest with `by_time`.

    Raises:
        DataError: the split does not exist or is the only one; a question or a conversation is on
            both sides; or a question has no time of its last change.
        InputError: both `holdout` and `by_time` are set.
    """
    if by_time:
        if holdout is not None:
            raise InputError(
                "--temporal and --holdout both select the held-out queries; give only one"
            )
        return _apart(recorded, temporal(_times(recorded), held_out, groups=recorded.groups))
    if holdout is not None:
        judges = np.array([split == holdout for split in recorded.splits])
        if judges.all() or not judges.any():
            known = ", ".join(map(repr, sorted(set(recorded.splits))))
            raise DataError(
                f"invalid --holdout {holdout!r}: the recording of {recorded.collection} has the "
                f"splits {known}; choose one of at least two"
            )
        return _apart(recorded, Split(np.flatnonzero(~judges), np.flatnonzero(judges)))
    rng = np.random.default_rng([seed, 5])
    drawn = stratified(recorded.categories, rng, held_out, groups=recorded.groups)
    return _apart(recorded, drawn)


def _times(recorded: World) -> list[float]:
    """Return the time of the last change of each question, in seconds since 1970."""
    said = recorded.times if isinstance(recorded, Recorded) else ()
    found = []
    for name, text in zip(recorded.queries, said or [""] * len(recorded), strict=True):
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise DataError(
                f"{recorded.collection}: question {name!r:.80} has last_updated {text!r:.40}; "
                "--temporal needs a date for every question, such as 2026-11-22; record it again "
                "with dates"
            ) from None
        found.append((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    return found


def _apart(recorded: World, split: Split) -> Split:
    """Refuse a split with a question on both sides. Near duplicates are dropped when recording."""
    named = {
        ("questions", "record it again with unique questions"): recorded.queries,
        ("conversations", "give all turns of a conversation the same split"): recorded.groups,
    }
    for (what, do), names in named.items():
        both = sorted(_on_both(names, split))
        if both:
            raise DataError(
                f"{recorded.collection}: {len(both)} {what} are on both sides of the split, such "
                f"as {both[0]!r:.80}; {do}"
            )
    return split


def _on_both(names: Sequence[str], split: Split) -> set[str]:
    if not names:
        return set()
    tuning, judging = ({names[place] for place in side} for side in (split.tuning, split.held_out))
    return (tuning & judging) - {""}


def _manifest(recorded: World, asked: RunOptions) -> dict[str, Any]:
    """Return what identifies a run. The number of evaluations may grow, so it is not in it."""
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
        **({"temporal": True} if asked.temporal else {}),
        "baseline": asked.baseline.parts(),
    }


def _hash_of(earlier: Path) -> str:
    file = earlier / "episodes.jsonl"
    if not file.is_file():
        raise DataError(f"no evaluations in {earlier}; name a folder of `steersman tune run`")
    return hashlib.sha256(file.read_bytes()).hexdigest()
