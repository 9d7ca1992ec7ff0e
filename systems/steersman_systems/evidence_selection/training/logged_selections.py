"""Logged selections of the service, as tasks and walks for training and evaluation.

Each stored selection is a task with its own candidates, so any policy of the point can be replayed
on it with exact probabilities. The reward of another selection is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from steersman.db.held_out import alike
from steersman.db.logged_choices import newest_selections
from steersman.errors import DataError, InputError
from steersman.ope import evaluate_sequences
from steersman.policies.offered import Progress, SequenceForm
from steersman.policies.sequence import Step, sequence_propensity
from steersman.spec.actions import Sequence as SequenceActions
from steersman_systems.evidence_selection.training.off_policy_data import sequences_of
from steersman_systems.evidence_selection.training.task import Options, TakenStep, Walk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from steersman.db.logged_choices import StoredSelection
    from steersman.db.points import PointRow
    from steersman.ope import Report
    from steersman.policies.offered import Offered
    from steersman.policies.sequential import SequencePolicy
    from steersman.spec.point import DecisionPoint

MOST_SELECTIONS = 10_000
_FOLDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class StoredTask:
    """Question of a stored selection.

    A state is the sequence of chosen places.

    Args:
        id: decision id.
        offered: candidates of the request.
        form: selection rules of the decision point.
    """

    id: str
    offered: Offered
    form: SequenceForm

    @property
    def group(self) -> str:
        """The task's id; each request is its own group."""
        return self.id

    def begin(self) -> tuple[int, ...]:
        """Return the first state."""
        return ()

    def options(self, state: tuple[int, ...]) -> Options | None:
        """Return the actions with their rows; None at the end."""
        progress = self._at(state)
        if progress.ended:
            return None
        names = progress.names
        return Options(names, progress.rows, len(names) - self.form.stop)

    def take(self, state: tuple[int, ...], place: int) -> tuple[int, ...]:
        """Return the state after an action."""
        return (*state, place)

    def reward(self, state: tuple[int, ...]) -> NoReturn:
        """Raise an error: only the logged reward is known.

        Raises:
            DataError: always.
        """
        raise DataError(
            f"the log has no reward for selection {state} of {self.id}; "
            "evaluate the policy off-policy, or sample where rewards are available"
        )

    def potential(self, state: tuple[int, ...]) -> float:
        """Return 0: no shaping is declared."""
        return 0.0 * len(state)

    def _at(self, state: tuple[int, ...]) -> Progress:
        progress = Progress(self.offered, self.form)
        for place in state:
            progress.take(place)
        return progress


def form_in(spec: DecisionPoint) -> SequenceForm:
    """Return the selection rules of a decision point of kind sequence.

    Raises:
        InputError: its actions are of another kind.
    """
    actions = spec.actions
    if not isinstance(actions, SequenceActions):
        message = f"{spec.skill}/{spec.decision} has {actions.kind} actions; allowed are sequences"
        raise InputError(message)
    return SequenceForm(actions.features, actions.vector, actions.max_steps, actions.stop)


def walk_of(stored: StoredSelection, form: SequenceForm) -> Walk:
    """Return a stored selection as a walk.

    Raises:
        DataError: it was logged under other rules.
    """
    progress = Progress(stored.offered, form)
    taken: list[TakenStep] = []
    for step in stored.steps:
        names, rows = progress.names, progress.rows
        known = {name: place for place, name in enumerate(names)}
        if progress.ended or not known.keys() >= {*step["eligible"], step["action"]}:
            raise DataError(
                f"step {len(taken) + 1} of selection {stored.id} is not allowed by these rules; "
                "pass the declaration that it was logged under"
            )
        places = [known[name] for name in step["eligible"]]
        logged = Step(tuple(step["eligible"]), step["action"], float(step["p"]))
        chosen = step["eligible"].index(step["action"])
        taken.append(TakenStep(logged, rows[places], chosen, places[chosen]))
        progress.take(places[chosen])
    propensity = sequence_propensity([one.step for one in taken])
    return Walk(stored.id, tuple(taken), stored.reward, propensity, np.zeros(len(taken) + 1))


async def stored_selections(
    connection: Any,
    row: PointRow,
    *,
    closed: datetime,
    since: datetime | None = None,
    limit: int = MOST_SELECTIONS,
) -> list[StoredSelection]:
    """Return the newest selections of a point with a final reward and the current rules.

    Args:
        since: earliest decision time; None for no limit.

    Returns:
        Selections in time order. Left out are fallbacks, withdrawn or erased decisions, decisions
        without a reward or with other actions, and the oldest beyond 256 MiB in total.

    Raises:
        InputError: the decision point is of another kind.
    """
    form_in(row.spec)
    point = row.tenant, row.skill, row.point
    specs = await alike(connection, point, row.spec)
    return await newest_selections(
        connection, point, closed=closed, since=since, specs=specs, limit=limit
    )


def judge_selections(
    policy: SequencePolicy, log: Sequence[StoredSelection], *, level: float = 0.95
) -> Report:
    """Return the off-policy evaluation of a policy on stored selections.

    Uses per-decision importance sampling, its weighted form and the doubly robust estimator, under
    the rules of `steersman.ope.evaluate_sequences`. Selections of one unit belong together. The
    logging policy may have learned from them, so reward models are fitted on the past only.

    Args:
        level: confidence level, in (0, 1).

    Returns:
        Estimates ``pdis``, ``wpdis``, ``dr`` (from five units on) and ``gain``, or the reasons why
        there are none.

    Raises:
        InputError: no selection.
        DataError: selections of other rules.
    """
    if not log:
        raise InputError("no selection has a reward; wait until windows close, or send outcomes")
    form = policy.form
    units = [one.unit for one in log]
    data = sequences_of(
        [StoredTask(one.id, one.offered, form) for one in log],
        [walk_of(one, form) for one in log],
        policy,
        policy.rule,
        folds=_FOLDS if len(set(units)) >= _FOLDS else None,
        adaptive=True,
        units=units,
    )
    return evaluate_sequences(data, level=level, adaptive=True)
