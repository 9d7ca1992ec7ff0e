"""Off-policy evaluation data for sequence policies, from logged selections."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError, InputError
from steersman.ope import LoggedSequences
from steersman_systems.evidence_selection.training.task import along

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.policies.scorers import Scorer
    from steersman.policies.sequence import StepRule
    from steersman_systems.evidence_selection.training.task import TargetSteps, Task, Walk

    Floats = NDArray[np.float64]
    _Known = list[NDArray[np.bool_]]


def sequences_of(
    tasks: Sequence[Task],
    log: Sequence[Walk],
    scorer: Scorer,
    rule: StepRule,
    *,
    folds: int | None = 5,
    adaptive: bool = False,
    ridge: float = 1.0,
    seed: int = 0,
    units: Sequence[str] | None = None,
) -> LoggedSequences:
    """Return logged selections with the target policy's probabilities at each step.

    The target's probabilities are exact. Selections of one question belong together. The value
    model is linear in the action rows. It is fitted from the last step to the first on other
    questions than it predicts for: V̂_t = Q̂_t of the mean row of the target's actions.

    Args:
        rule: how scores become probabilities. Actions that the log could not draw are missing;
            `evaluate_sequences` gives no estimate if they exceed 1 % of the target's probability.
        folds: number of folds of questions, from 2 to their number; None: no model and no ``dr``.
        adaptive: whether the logging policy learned from these rewards. Folds are then time blocks
            of the ordered log, and models use earlier blocks and other units; the first has none.
        ridge: ridge penalty of each fit on standardised rows, > 0.
        units: unit of each selection, such as a user or an episode; None: its question.

    Raises:
        InputError: no selection, or folds or ridge out of range.
        DataError: a selection has no step, an unknown question or other limits.

    Source: the model: Le, Voloshin & Yue, Batch Policy Learning under Constraints (2019), fitted Q
    evaluation; folds by question as cross-fitting: Chernozhukov et al. (2018), Double/debiased
    machine learning.
    """
    if units is not None and len(units) != len(log):
        raise InputError(
            f"{len(units)} units for {len(log)} selections; pass one unit per selection"
        )
    named = [one.task for one in log] if units is None else list(units)
    names, which = np.unique(named, return_inverse=True)
    lengths = _lengths(log, len(names), folds, ridge)
    steps = _along(tasks, log, scorer, rule)
    logged = _laid_out(log, steps, lengths, which)
    if folds is None:
        return logged
    fold, known = _stretches(which, folds) if adaptive else _folds(which, folds, seed)
    there = np.arange(int(lengths.max())) < lengths[:, None]
    q_hat, v_hat = _rest(steps, there, logged.rewards, fold, known, ridge)
    return replace(logged, q_hat=q_hat, v_hat=v_hat)


def _laid_out(
    log: Sequence[Walk],
    steps: Sequence[TargetSteps],
    lengths: NDArray[np.int64],
    unit: NDArray[np.intp],
) -> LoggedSequences:
    """Return one row per selection and one column per step, without a model."""
    most = int(lengths.max())
    there = np.arange(most) < lengths[:, None]
    propensities, target = np.ones((2, len(log), most))
    missing, rewards = np.zeros((2, len(log), most))
    propensities[there] = [taken.step.p for one in log for taken in one.taken]
    target[there] = np.concatenate([one.chances for one in steps])
    missing[there] = np.concatenate([one.missing for one in steps])
    rewards[np.arange(len(log)), lengths - 1] = [one.reward for one in log]
    return LoggedSequences(
        propensities=propensities,
        target=target,
        rewards=rewards,
        lengths=lengths,
        clusters=unit.astype(np.int64),
        missing=missing,
    )


def _lengths(
    log: Sequence[Walk], questions: int, folds: int | None, ridge: float
) -> NDArray[np.int64]:
    """Return the number of steps of each selection, or raise an error for unusable ones."""
    if not log or (folds is not None and not 2 <= folds <= questions) or ridge <= 0.0:
        raise InputError(
            f"{len(log)} selections of {questions} questions, folds {folds!r}, ridge {ridge!r}; "
            "allowed are at least one selection, folds from 2 to the number of questions, ridge > 0"
        )
    lengths = np.array([len(one.taken) for one in log], np.int64)
    if not lengths.all():
        raise DataError(
            f"a selection for {log[int(lengths.argmin())].task!r} has no step, so no policy can "
            "differ on it; leave its question out"
        )
    return lengths


def _along(
    tasks: Sequence[Task], log: Sequence[Walk], scorer: Scorer, rule: StepRule
) -> list[TargetSteps]:
    of_task = {task.id: task for task in tasks}
    places: dict[str, list[int]] = {}
    for place, one in enumerate(log):
        places.setdefault(one.task, []).append(place)
    if missing := sorted(places.keys() - of_task.keys()):
        raise DataError(
            f"the log has selections for {missing[0]!r}, not among the {len(tasks)} questions; "
            "pass every question of the log"
        )
    found: dict[int, TargetSteps] = {}
    for name, own in places.items():
        told = along(of_task[name], [log[place] for place in own], scorer, rule)
        found |= dict(zip(own, told, strict=True))
    return [found[place] for place in range(len(log))]


def _rest(
    steps: Sequence[TargetSteps],
    there: NDArray[np.bool_],
    rewards: Floats,
    fold: NDArray[np.intp],
    known: _Known,
    ridge: float,
) -> tuple[Floats, Floats]:
    """Return (n, T) Q̂ and V̂ of each step, cross-fitted by question."""
    taken, meant = np.zeros((2, *there.shape, steps[0].taken.shape[1]))
    taken[there] = np.concatenate([one.taken for one in steps])
    meant[there] = np.concatenate([one.meant for one in steps])
    q_hat, v_hat = np.zeros((2, *there.shape))
    for own in np.unique(fold):
        ahead = np.zeros(
            len(steps)
        )  # V̂ of the next step, for all selections, from this fold's models
        for step in reversed(range(there.shape[1])):
            here = there[:, step]
            learned, judged = here & known[own], here & (fold == own)
            before = np.zeros(len(steps))
            if learned.any():
                model = _Line.fit(
                    taken[learned, step], rewards[learned, step] + ahead[learned], ridge
                )
                q_hat[judged, step] = model(taken[judged, step])
                before[here] = model(meant[here, step])
                v_hat[judged, step] = before[judged]
            ahead = before
    return q_hat, v_hat


def _folds(unit: NDArray[np.intp], folds: int, seed: int) -> tuple[NDArray[np.intp], _Known]:
    """Return the fold of each selection by its unit; each model uses all other folds."""
    drawn = np.random.default_rng([seed, 10]).permutation(int(unit.max()) + 1) % folds
    fold = drawn[unit]
    return fold, [fold != own for own in range(folds)]


def _stretches(unit: NDArray[np.intp], folds: int) -> tuple[NDArray[np.intp], _Known]:
    """Return the time block of each selection; each model uses earlier blocks and other units."""
    fold = np.arange(len(unit)) * folds // len(unit)
    known = [(fold < own) & ~np.isin(unit, unit[fold == own]) for own in range(folds)]
    return fold, known


class _Line:
    """Linear model on standardised columns, so mean rows are sufficient."""

    def __init__(self, mean: Floats, weights: Floats, level: float) -> None:
        self._mean, self._weights, self._level = mean, weights, level

    @classmethod
    def fit(cls, rows: Floats, values: Floats, ridge: float) -> _Line:
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        scale = np.where(spread > 1e-9, spread, np.inf)  # a constant column has no information
        scaled = (rows - mean) / scale
        level = float(values.mean())
        moments = scaled.T @ scaled + ridge * np.eye(rows.shape[1])
        weights = np.linalg.solve(moments, scaled.T @ (values - level)) / scale
        return cls(mean, weights, level)

    def __call__(self, rows: Floats) -> Floats:
        found: Floats = (rows - self._mean) @ self._weights + self._level
        return found
