"""Reference log: the logged requests on which two snapshots are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from steersman.errors import InputError
from steersman.ope import drawn_or_another
from steersman.policies import JointLinTS, JointSquareCB
from steersman.policies.configurations import are_configurations
from steersman.policies.sequential import SequencePolicy, weigh_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy

    Floats = NDArray[np.float64]


_ANOTHER = "any other"
_COLUMNS = ("contexts", "propensities", "rewards", "other_contexts", "features", "units")


@dataclass(frozen=True, eq=False)
class Reference:
    """Reference log of n decisions, in order.

    Args:
        contexts: n contexts for the first snapshot's policy: an (n, d) array or keys.
        actions: n logged action names.
        propensities: (n,) propensities of the logged actions, in (0, 1].
        rewards: (n,) rewards; NaN if missing (used for traffic only).
        other_contexts: n contexts for the second snapshot's policy; None: the same.
        eligible: n lists of eligible actions; None, also for one request: all actions.
        features: n sets of per-action features for joint models: by name, or in the order of
            ``eligible`` (or of the policy's actions). For selections: pairs of the offered
            candidates and the stored steps.
        units: n labels of units (users, sessions or episodes) whose rows may be dependent.
        adaptive: whether the logging policy learned from these rewards.
        reward_range: smallest and largest possible reward; default (0, 1).

    Raises:
        InputError: the lengths differ or are 0.

    >>> Reference(np.zeros((2, 3)), ["a"], [0.5], [1.0])
    Traceback (most recent call last):
    steersman.errors.InputError: the reference log's contexts have 2 rows, its actions 1; ...
    """

    contexts: Sequence[Any] | Floats
    actions: Sequence[str]
    propensities: Sequence[float] | Floats
    rewards: Sequence[float] | Floats
    other_contexts: Sequence[Any] | Floats | None = None
    eligible: Sequence[Sequence[str] | None] | None = None
    features: Sequence[Any] | None = None
    units: Sequence[Any] | None = None
    adaptive: bool = True
    reward_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        """Check that all columns have the same length."""
        count = len(self.actions)
        if count == 0:
            raise InputError("the reference log is empty; choose decisions to compare on")
        for name in ("eligible", *_COLUMNS):
            self._check_length(name, count)

    def __len__(self) -> int:
        return len(self.actions)

    def known_to(self, *policies: ChoicePolicy) -> Reference:
        """Return the log without rows in which a policy has no eligible action.

        Raises:
            InputError: no rows remain.
        """
        keep = [
            eligible is None
            or all(any(name in policy.actions for name in eligible) for policy in policies)
            for eligible in self.eligible or ()
        ]
        if all(keep):
            return self
        if not any(keep):
            message = "in no request of the reference log is an action of both snapshots eligible; "
            raise InputError(message + "choose other requests")
        columns = {
            name: _rows_of(getattr(self, name), keep) for name in ("actions", "eligible", *_COLUMNS)
        }
        return replace(self, **columns)

    def _check_length(self, name: str, count: int) -> None:
        values = getattr(self, name)
        if values is not None and len(values) != count:
            message = (
                f"the reference log's {name} have {len(values)} rows, its actions {count}; "
                "pass one of each per decision"
            )
            raise InputError(message)


@dataclass(frozen=True, eq=False)
class PolicyDecisions:
    """Decisions of one policy on a reference log.

    Args:
        columns: column names of ``target``; empty for open candidates.
        names: n lists of action names, in the order of the row's probabilities.
        rows: n arrays of probabilities, in the order of ``names``.
        missing: n probabilities that the log could not draw; None without selections.
    """

    columns: tuple[str, ...]
    names: list[tuple[str, ...]]
    rows: list[Floats] = field(repr=False)
    missing: list[float] | None = None

    def target(self) -> Floats:
        """Return the probabilities as an (n, K) matrix: by column, or by place in the request."""
        width = len(self.columns) or max(len(names) for names in self.names)
        place = {name: i for i, name in enumerate(self.columns)}
        matrix: Floats = np.zeros((len(self.rows), width))
        for row, (names, probabilities) in enumerate(zip(self.names, self.rows, strict=True)):
            where = [place[name] for name in names] if place else slice(len(names))
            matrix[row, where] = probabilities
        return matrix

    def places(self, actions: Sequence[str]) -> NDArray[np.int64]:
        """Return the column of each logged action.

        Raises:
            InputError: an action was not eligible in its row.
        """
        fixed = {name: i for i, name in enumerate(self.columns)}
        found = []
        for row, action in enumerate(actions):
            names = self.columns or self.names[row]
            if action not in names:
                message = (
                    f"row {row} of the reference log chose {action!r:.80}, which is not among its "
                    f"candidates {list(names)[:5]}; leave such rows out"
                )
                raise InputError(message)
            found.append(fixed[action] if fixed else names.index(action))
        return np.array(found, dtype=np.int64)

    def traffic(self) -> dict[str, float]:
        """Return the share of all requests per action."""
        shares: dict[str, float] = {}
        for names, probabilities in zip(self.names, self.rows, strict=True):
            for name, probability in zip(names, probabilities.tolist(), strict=True):
                shares[name] = shares.get(name, 0.0) + probability / len(self.rows)
        return shares


def decided(
    policy: ChoicePolicy, reference: Reference, columns: tuple[str, ...], *, other: bool = False
) -> PolicyDecisions:
    """Return the decisions of a policy on every row of a reference log.

    Raises:
        InputError: a row that the policy cannot decide.

    >>> from steersman.policies import Fixed
    >>> log = Reference([None, None], ["a", "b"], [0.5, 0.5], [1.0, 0.0])
    >>> decided(Fixed(["a", "b"], "b"), log, ("a", "b")).target().tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    contexts = reference.contexts
    if other and reference.other_contexts is not None:
        contexts = reference.other_contexts
    names: list[tuple[str, ...]] = []
    rows: list[Floats] = []
    missing: list[float] = []
    for row in range(len(reference)):
        eligible = None if reference.eligible is None else reference.eligible[row]
        features = None if reference.features is None else reference.features[row]
        if isinstance(policy, SequencePolicy):  # two columns: drawn or not drawn
            names.append((reference.actions[row], _ANOTHER))
            offered, steps = features or _no_offer(row)
            whole = weigh_whole(policy, offered, steps)
            missing.append(whole.missing)
            rows.append(drawn_or_another([whole.mass])[0])
            continue
        known, rows_of = _known(policy, eligible, features)
        try:
            distribution = policy.distribution(contexts[row], eligible=known, features=rows_of)
        except InputError as error:
            message = f"row {row} of the reference log cannot be decided: {error}"
            raise InputError(message) from error
        if are_configurations(policy.actions):  # thousands of actions: only drawn or not drawn
            action = reference.actions[row]
            names.append((action, _ANOTHER))
            barred = action not in policy.actions
            rows.append(
                drawn_or_another([0.0 if barred else distribution[policy.index(action)]])[0]
            )
            continue
        names.append(policy.actions or tuple(known or ()))
        rows.append(distribution)
    return PolicyDecisions(columns, names, rows, missing or None)


def _rows_of(column: Any, keep: Sequence[bool]) -> Any:
    if column is None or isinstance(column, np.ndarray):
        return None if column is None else column[np.array(keep)]
    return [value for value, kept in zip(column, keep, strict=True) if kept]


def _no_offer(row: int) -> NoReturn:
    message = f"row {row} of the reference log has no offered candidates; leave it out"
    raise InputError(message)


def _known(
    policy: ChoicePolicy, eligible: Sequence[str] | None, features: Any
) -> tuple[Sequence[str] | None, Any]:
    """Return the eligible actions that the policy has, and their features if it uses any."""
    if not isinstance(policy, (JointLinTS, JointSquareCB)):
        features = None
    if eligible is None or not policy.actions or are_configurations(policy.actions):
        return eligible, features
    places = [i for i, name in enumerate(eligible) if name in policy.actions]
    if features is not None and not isinstance(features, Mapping):
        features = [features[place] for place in places]
    return [eligible[place] for place in places], features
