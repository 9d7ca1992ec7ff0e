"""Selections that a service logged, as learning and evaluation take them: tasks and walks.

A stored selection is a question of its own: its candidates are known with all that was said of
them, so any policy of the same point can be gone through it again, and its exact probabilities of
what was done are known. What another selection would have earned is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from steersman.errors import DataError, InputError
from steersman.learn.selecting.judging import sequences_of
from steersman.learn.selecting.task import Options, Taken, Walk
from steersman.ope import evaluate_sequences
from steersman.policies import Progress, SequenceForm, Step, sequence_propensity
from steersman.spec import Sequence as SequenceActions
from steersman.store import alike, newest_rows, offered_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from steersman.ope import Report
    from steersman.policies import Offered, SequencePolicy
    from steersman.spec import DecisionPoint
    from steersman.store import PointRow

MOST_SELECTIONS = 10_000
_FOLDS = 5


class StoredSelection(NamedTuple):
    """A selection with what it earned.

    Attributes:
        id: of the decision.
        unit: what it belongs to: its unit, its episode or itself.
        offered: the candidates of its request.
        steps: as they are stored.
        reward: 0 to 1.
    """

    id: str
    unit: str
    offered: Offered
    steps: list[dict[str, Any]]
    reward: float


@dataclass(frozen=True, slots=True, eq=False)
class StoredTask:
    """A logged selection's question, as `steersman.learn.selecting` goes through it.

    A state is the places that were taken so far.

    Args:
        id: of the decision.
        offered: the candidates of its request.
        form: the rules of its point.
    """

    id: str
    offered: Offered
    form: SequenceForm

    @property
    def group(self) -> str:
        """Its id: a request stands alone."""
        return self.id

    def begin(self) -> tuple[int, ...]:
        """Return the first state."""
        return ()

    def options(self, state: tuple[int, ...]) -> Options | None:
        """Return the actions with what is seen of each; None: it has ended.

        Args:
            state: any of this task.
        """
        progress = self._at(state)
        if progress.ended:
            return None
        names = progress.names
        return Options(names, progress.rows, len(names) - self.form.stop)

    def take(self, state: tuple[int, ...], place: int) -> tuple[int, ...]:
        """Return the state after an action.

        Args:
            state: where it is taken.
            place: of the action among the options.
        """
        return (*state, place)

    def reward(self, state: tuple[int, ...]) -> NoReturn:
        """Refuse: only what was logged is known.

        Args:
            state: in which a selection ended.

        Raises:
            DataError: always.
        """
        raise DataError(
            f"the log has no reward for selection {state} of {self.id}; "
            "evaluate the policy off-policy, or sample where rewards are available"
        )

    def potential(self, state: tuple[int, ...]) -> float:
        """Return 0: nothing is declared for shaping.

        Args:
            state: any of this task.
        """
        return 0.0 * len(state)

    def _at(self, state: tuple[int, ...]) -> Progress:
        progress = Progress(self.offered, self.form)
        for place in state:
            progress.take(place)
        return progress


def form_in(spec: DecisionPoint) -> SequenceForm:
    """Return the rules of a point of kind sequence.

    Args:
        spec: its declaration.

    Returns:
        Features, vector, most steps, and whether it may stop.

    Raises:
        InputError: its actions are of another kind.
    """
    actions = spec.actions
    if not isinstance(actions, SequenceActions):
        message = f"{spec.skill}/{spec.decision} has {actions.kind} actions; allowed are sequences"
        raise InputError(message)
    return SequenceForm(actions.features, actions.vector, actions.max_steps, actions.stop)


def walk_of(stored: StoredSelection, form: SequenceForm) -> Walk:
    """Return a stored selection with all that learning needs of its steps.

    Args:
        stored: the selection.
        form: the rules that it was logged under.

    Returns:
        Its steps with the rows of what could be drawn.

    Raises:
        DataError: it was logged under other rules.
    """
    progress = Progress(stored.offered, form)
    taken: list[Taken] = []
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
        taken.append(Taken(logged, rows[places], chosen, places[chosen]))
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
    """Return the newest selections of a point whose reward stands, of the same rules as today's.

    Args:
        connection: within a transaction of the tenant.
        row: the point, as it is declared now.
        closed: windows that end later are open.
        since: none that were made before; None: however old.
        limit: most of them.

    Returns:
        In the order in which they were made. Fallbacks, what was taken back or erased, what has no
        reward, and what was made under a declaration with other actions are left out; so are the
        oldest ones that together would take more than 256 MiB.

    Raises:
        InputError: a point of another kind.
    """
    form_in(row.spec)
    point = row.tenant, row.skill, row.point
    rows = await newest_rows(
        connection,
        "SELECT d.id::text, coalesce(d.unit, d.episode, d.id::text), d.eligible, d.links, "
        "d.features, d.steps, r.value FROM decision AS d, LATERAL ("
        "  SELECT r.value FROM reward AS r WHERE r.tenant = $1 AND r.decision = d.id "
        "  ORDER BY r.revision DESC LIMIT 1) AS r "
        "WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 AND d.spec_hash = ANY($4) "
        "AND d.p_kind = 'exact' AND NOT d.degraded AND d.weight > 0 AND d.steps IS NOT NULL "
        "AND d.window_ends <= $5 AND ($6::timestamptz IS NULL OR d.at > $6) "
        "AND r.value IS NOT NULL "
        "AND NOT EXISTS (SELECT FROM erasure AS e WHERE e.tenant = $1 AND e.decision = d.id) "
        "ORDER BY d.id DESC LIMIT $7",
        *(*point, await alike(connection, point, row.spec), closed, since, limit),
    )
    return [
        StoredSelection(name, unit, offered_of(eligible, links, features), steps, value)
        for name, unit, eligible, links, features, steps, value in rows
    ]


def judge_selections(
    policy: SequencePolicy, log: Sequence[StoredSelection], *, level: float = 0.95
) -> Report:
    """Return what stored selections say of a policy: refused, or with intervals.

    Per-decision importance sampling, its weighted form, and the doubly robust sum; by the rule of
    `steersman.ope.evaluate_sequences`. Selections of one unit belong together. What logged them may
    have learned from them, so models of rewards are fitted on the past alone.

    Args:
        policy: of the same rules as the log's.
        log: selections with rewards, one or more, in the order in which they were made.
        level: of the intervals, in (0, 1).

    Returns:
        Estimates ``pdis``, ``wpdis``, ``dr`` (this one from five selections' units on) and
        ``gain``, and reasons where the log cannot tell.

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
