"""Actions, eligible actions and propensities of log rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.imports import values
from steersman.db.imports.mapping import field_of
from steersman.errors import InputError
from steersman.points.feature_encoding import rounded
from steersman.spec.actions import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from steersman.db.imports.mapping import LogMapping
    from steersman.spec.actions import Actions

_TOLERANCE = 1e-6


class LoggedDraw(NamedTuple):
    """Draw of an action.

    Attributes:
        eligible: eligible action names; None: all declared ones.
        distribution: probabilities of the declared actions, or of the eligible ones if
            open; empty if unknown.
        p: propensity of the action; None if unknown.
    """

    eligible: list[str] | None
    distribution: list[float]
    p: float | None


class ChoiceReader:
    """Reader of actions and propensities.

    Args:
        actions: choice of the decision point.
        mapping: mapping of the log.
    """

    def __init__(self, actions: Actions, mapping: LogMapping) -> None:
        assert isinstance(actions, Choice)  # noqa: S101 (checked with the mapping)
        self._actions, self._mapping = actions, mapping
        self._action = field_of(mapping.action)

    def drawn(self, row: dict[str, Any]) -> tuple[str, LoggedDraw]:
        """Return the action of a row and its draw.

        Raises:
            InputError: the action is unknown or ineligible, or a propensity is invalid.
        """
        found = values.valued(row, self._action)
        if found is None:
            raise InputError(f"the action field {self._action.field!r} is absent or empty")
        action = values.as_text(found)
        eligible = self._eligible(row)
        known = self._known(eligible)
        if action not in known:
            allowed = ", ".join(known[:20])
            raise InputError(f"the action is {action!r:.60}; allowed are {allowed}; see rename")
        return action, self._propensity(row, action, eligible)

    def _eligible(self, row: dict[str, Any]) -> list[str] | None:
        field = self._mapping.eligible
        if field is None:
            return None
        found = values.lookup(row, field)
        if found is None:
            raise InputError(f"the field {field!r} of eligible actions is absent or empty")
        names = [values.as_text(self._renamed(name)) for name in values.as_list(field, found)]
        unknown = set(names) - set(self._actions.names)
        if unknown and not self._actions.open:
            allowed = ", ".join(self._actions.names[:20])
            raise InputError(f"eligible names {min(unknown)!r:.60}; allowed are {allowed}")
        if not names or len(set(names)) < len(names):
            message = f"eligible is {names!r:.60}; allowed are different names, at least one"
            raise InputError(message)
        return names

    def _renamed(self, name: Any) -> Any:
        return self._action.rename.get(values.as_text(name), name)

    def _known(self, eligible: list[str] | None) -> Sequence[str]:
        return self._actions.names if eligible is None else eligible

    def _propensity(
        self, row: dict[str, Any], action: str, eligible: list[str] | None
    ) -> LoggedDraw:
        given = self._mapping.propensity
        if given is None:
            return LoggedDraw(eligible, [], None)
        if given.distribution is not None:
            return self._distribution(row, given.distribution, action, eligible)
        p = given.constant
        if given.field is not None:
            found = values.lookup(row, given.field)
            p = values.as_float(f"the propensity {given.field!r}", found)
        return LoggedDraw(eligible, [], _probability("the propensity", p))

    def _distribution(
        self, row: dict[str, Any], field: str, action: str, eligible: list[str] | None
    ) -> LoggedDraw:
        known = self._known(eligible)
        given = values.as_mapping(field, values.lookup(row, field), known)
        by_name = {
            values.as_text(self._renamed(name)): values.as_float(f"the probability of {name!r}", p)
            for name, p in given.items()
        }
        odd = [name for name, p in by_name.items() if p < 0 or (name not in known and p > 0)]
        if odd:
            message = f"the probability of {odd[0]!r:.60} is {by_name[odd[0]]}; allowed is 0 to 1, "
            raise InputError(message + "and 0 for ineligible actions")
        total = sum(by_name.values())
        if abs(total - 1.0) > _TOLERANCE:
            raise InputError(f"the probabilities sum to {total:.9g}; allowed is 1 within 1e-6")
        p = _probability(f"the probability of {action!r}", by_name.get(action, 0.0))
        order = self._known(eligible) if self._actions.open else self._actions.names
        return LoggedDraw(eligible, rounded([by_name.get(n, 0.0) for n in order]).tolist(), p)

    def candidates(
        self, row: dict[str, Any], action: str, eligible: list[str] | None
    ) -> tuple[np.ndarray[Any, np.dtype[np.float64]], list[float]]:
        """Return the chosen action's features and those of all eligible actions.

        Raises:
            InputError: a list of the declared length is missing for an eligible action.
        """
        field = self._mapping.features or ""
        known = self._known(eligible)
        given = values.as_mapping(field, values.lookup(row, field), known)
        size = len(self._actions.features)
        for name in known:
            numbers = given.get(name)
            if not isinstance(numbers, list | tuple) or len(numbers) != size:
                message = f"the features of {name!r:.60} are {numbers!r:.60}; allowed is a "
                raise InputError(f"{message}list of {size} numbers for every eligible action")
        table = rounded(
            [
                [values.as_float(f"a feature of {name!r:.60}", n) for n in given[name]]
                for name in known
            ]
        )
        return table[list(known).index(action)], table.ravel().tolist()


def _probability(what: str, p: float | None) -> float:
    if p is not None and 0.0 < p <= 1.0:
        return p
    message = f"{what} is {p!r}; allowed is above 0 and up to 1, because the action was taken"
    raise InputError(message)
