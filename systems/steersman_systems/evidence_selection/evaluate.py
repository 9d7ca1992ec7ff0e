"""Evaluation of policies on questions: selections, measures and answers."""

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
        """Name in reports."""

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the trained selector."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Contender without training.

    Args:
        selector: selector to measure.
    """

    selector: Selector

    @property
    def name(self) -> str:
        """Name of the selector."""
        return self.selector.name

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector unchanged."""
        return self.selector


@dataclass(frozen=True, slots=True)
class Trial:
    """Contender with its candidates.

    Args:
        contender: contender to measure.
        pools: one per question.
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
    """Measure policies on questions, each on held-out questions only.

    Args:
        folds: number of folds, 2 to 20.
        answerer: answers questions from the picked passages; None: no answers.
        judge: faithfulness of an answer; None: whether the passages contain it.
        done: called with 1 after each selection; with an answerer, after each answer.
        address: Ray cluster for training and selection, one fold of a policy per task; answers are
            requested from this machine. None: everything runs here.
        clock: clock in seconds.

    Raises:
        DataError: no policy could be evaluated.
        InputError: too few questions or groups, folds out of range, or two contenders with one
            name.
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
    # By question, not by policy: a used-up call budget then affects all policies equally.
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
    """Train each contender without each fold, and select for that fold's questions.

    One fold of a contender is one item of `steersman.training.parallel_map.spread`. Random draws
    depend only on the seed and the question, so the results do not depend on the machine.

    Args:
        address: Ray cluster; None: this machine.
        clock: clock in seconds, of the machine that runs the fold.
        done: called with 1 after each question of each trial.

    Raises:
        ClusterError: as `steersman.training.parallel_map.spread`.
    """
    folds = np.unique(fold_of).tolist()
    # Trials with shared candidates send them once.
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
    """Return the fold of each question; a group is never split.

    Args:
        folds: 2 to the smaller of 20 and the number of groups.

    Raises:
        InputError: `folds` is out of range.

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
    """Return the conversation of each question; else the question id."""
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
    """Return (place, selection, ms) per question of a fold, or why training failed."""
    contender, which, fold = part
    pools = different[which]
    try:
        selector = contender.fitted(
            [pools[place] for place in np.flatnonzero(fold_of != fold).tolist()]
        )
    except (DataError, InputError, FloatingPointError) as refused:
        # An extra is missing, there is too little data, or a loss was not finite.
        return str(refused)
    found = []
    for place in np.flatnonzero(fold_of == fold).tolist():
        rng = np.random.default_rng([seed, 17, place])
        start = clock()
        selection = selector.select(pools[place], rng=rng)
        found.append((place, selection, 1e3 * (clock() - start)))
    return found
