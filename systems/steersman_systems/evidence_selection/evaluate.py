"""Evaluation of policies on questions: selections, their measures and answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.errors import DataError, InputError
from steersman.training.parallel_map import spread
from steersman_systems.evidence_selection.evaluation import Evaluation, Row
from steersman_systems.evidence_selection.selection_values import SelectionMeasures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.providers.judges.judge import Measure
    from steersman_systems.evidence_selection.answer_model import Answerer
    from steersman_systems.evidence_selection.environment import Selection, Selector
    from steersman_systems.evidence_selection.pool import Pool

    Floats = NDArray[np.float64]
    Selected = list[tuple[Selection, float]]

Timer = Callable[[], float]


class Contender(Protocol):
    """Policy in an evaluation: fixed, or trained on each fold's training questions."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector to be measured."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A contender that learns nothing.

    Args:
        selector: that is measured.
    """

    selector: Selector

    @property
    def name(self) -> str:
        """The selector's."""
        return self.selector.name

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector itself."""
        return self.selector


@dataclass(frozen=True, slots=True)
class Trial:
    """A contender on candidates.

    Args:
        contender: that is measured.
        pools: one a question.
    """

    contender: Contender
    pools: Sequence[Pool]


def evaluate(
    name: str,
    pools: Sequence[Pool],
    contenders: Sequence[Contender],
    *,
    groups: Mapping[str, str] | None = None,
    folds: int = 5,
    seed: int = 0,
    answerer: Answerer | None = None,
    judge: Measure | None = None,
    absent: Mapping[str, str] | None = None,
    done: Callable[[int], None] | None = None,
    address: str | None = None,
    clock: Timer = time.perf_counter,
) -> Evaluation:
    """Measure policies on questions, each on those it did not learn from.

    Args:
        folds: 2 to 20.
        answerer: of questions from what was picked; None: nothing is answered.
        judge: of an answer's faithfulness; None: whether it stands in what was shown.
        done: called with 1 after each question of each policy: selected from, or, with an
            answerer, answered.
        address: of a Ray cluster that trains and selects, a fold of a policy at a time; answers are
            asked from here. None: all of it here.
        clock: seconds.

    Raises:
        DataError: no policy could be evaluated.
        InputError: too few questions or groups, folds out of range, or two contenders of one name.
        ClusterError: as `steersman.training.parallel_map.spread`.
    """
    names = [one.name for one in contenders]
    if not names or len(set(names)) < len(names):
        raise InputError(f"contenders are {names}; give one or more with different names")
    of = groups_of(pools, groups)
    fold_of = folds_of(of, folds, seed)
    left_out, told_of = dict(absent or {}), done or _untold
    selected: dict[str, Selected] = {}
    trials = [Trial(one, pools) for one in contenders]
    told = select_held_out(
        trials, fold_of, seed=seed, address=address, clock=clock,
        done=None if answerer is not None else told_of,
    )  # fmt: skip
    for one, found in zip(names, told, strict=True):
        if isinstance(found, str):
            left_out[one] = found
        else:
            selected[one] = found
    if not selected:
        raise DataError("; ".join(f"{one}: {why}" for one, why in left_out.items()))
    rows: dict[str, list[Row]] = {one: [] for one in selected}
    valuing = SelectionMeasures(answerer, judge)
    # Question by question over all policies: where calls run out, they run out for all alike.
    for place, pool in enumerate(pools):
        for one, found in selected.items():
            selection, took_ms = found[place]
            row = valuing.row(one, pool, selection, took_ms, of[place], int(fold_of[place]))
            rows[one].append(row)
            if answerer is not None:
                told_of(1)
    return Evaluation(name, tuple(pools), {p: (*r,) for p, r in rows.items()}, left_out, seed)


def select_held_out(
    trials: Sequence[Trial],
    fold_of: NDArray[np.intp],
    *,
    seed: int,
    address: str | None = None,
    clock: Timer = time.perf_counter,
    done: Callable[[int], None] | None = None,
) -> Iterator[Selected | str]:
    """Train each contender without each fold, and let it select for that fold's questions.

    A fold of a contender is one item of `steersman.training.parallel_map.spread`: what it draws
    depends on the seed and the question alone, so it is the same wherever and whenever it is worked
    on.

    Args:
        address: of a Ray cluster; None: here.
        clock: seconds; where the cluster's processor works, it is that one's.
        done: called with 1 after each question of each trial.

    Raises:
        ClusterError: as `steersman.training.parallel_map.spread`.
    """
    folds = np.unique(fold_of).tolist()
    # Trials that share their candidates send them once.
    different = list({id(one.pools): one.pools for one in trials}.values())
    where = {id(pools): place for place, pools in enumerate(different)}
    work = partial(_fold_of, different, fold_of, seed, clock)
    parts = [(one.contender, where[id(one.pools)], fold) for one in trials for fold in folds]
    told = spread(work, parts, address=address)
    for one in trials:
        found: list[tuple[Selection, float] | None] = [None] * len(one.pools)
        refused = ""
        for part in islice(told, len(folds)):
            if isinstance(part, str):
                refused = part
                continue
            for place, selection, took_ms in part:
                found[place] = (selection, took_ms)
                if done is not None:
                    done(1)
        yield refused or [entry for entry in found if entry is not None]


def folds_of(groups: Sequence[str], folds: int, seed: int) -> NDArray[np.intp]:
    """Return the fold of each question, all of one group in one fold.

    Args:
        folds: 2 to 20, at most as many as there are groups.

    Raises:
        InputError: `folds` is out of its range.

    >>> folds_of(["a", "a", "b"], 2, 0).tolist() in ([0, 0, 1], [1, 1, 0])
    True
    """
    names, place = np.unique(np.asarray(groups), return_inverse=True)
    if not 2 <= folds <= min(20, len(names)):
        message = f"folds is {folds!r}; allowed: 2 to 20, and at most the number of conversations"
        raise InputError(f"{message} or single questions, {len(names)}")
    order = np.random.default_rng([seed, 16]).permutation(len(names))
    return np.asarray(order % folds, np.intp)[place]


def groups_of(pools: Sequence[Pool], groups: Mapping[str, str] | None) -> list[str]:
    """Return the conversation of each question; itself, where it is in none."""
    kept = groups or {}
    return [kept.get(pool.question.id, pool.question.id) for pool in pools]


def _untold(_: int) -> None:
    """Do nothing."""


def _fold_of(
    different: Sequence[Sequence[Pool]],
    fold_of: NDArray[np.intp],
    seed: int,
    clock: Timer,
    part: tuple[Contender, int, int],
) -> list[tuple[int, Selection, float]] | str:
    """Return (place, selection, ms) of a fold's questions; or why its policy cannot be trained."""
    contender, which, fold = part
    pools = different[which]
    try:
        selector = contender.fitted(
            [pools[place] for place in np.flatnonzero(fold_of != fold).tolist()]
        )
    except (DataError, InputError, FloatingPointError) as refused:
        # An extra is missing, there are too few to learn from, or a loss was no number.
        return str(refused)
    found = []
    for place in np.flatnonzero(fold_of == fold).tolist():
        rng = np.random.default_rng([seed, 17, place])
        start = clock()
        selection = selector.select(pools[place], rng=rng)
        found.append((place, selection, 1e3 * (clock() - start)))
    return found
