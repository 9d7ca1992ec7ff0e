"""A candidate that verified, and what it would have drawn where the control did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from steersman.errors import InputError, RolloutError
from steersman.features import FeatureMap
from steersman.learn.candidates import holds_line
from steersman.registry import weigh_whole
from steersman.spec import Mixed
from steersman.spec import Sequence as SequenceActions
from steersman.store import encode, find_snapshot, offered_of, spec_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from numpy.typing import NDArray

    from steersman.learn import Bases
    from steersman.policies import ChoicePolicy, SequencePolicy
    from steersman.registry import Whole
    from steersman.spec import DecisionPoint
    from steersman.store import PointRow, SnapshotRow

    Floats = NDArray[np.float64]


_COLUMNS = (
    "d.id, coalesce(d.unit, d.episode, d.id::text), d.context, d.eligible, d.features, d.action, "
    "d.p, {}, d.links, d.steps"
)


def logged_columns(reward: str) -> str:
    """Return the columns of `LoggedChoice`, in SQL, of a decision ``d``.

    Args:
        reward: SQL of its reward; a constant.

    >>> logged_columns("r.value").split(", ")[-3:]
    ['r.value', 'd.links', 'd.steps']
    """
    return _COLUMNS.format(reward)


class LoggedChoice(NamedTuple):
    """A decision of the control, as another policy has to see it.

    Attributes:
        id: of the decision.
        unit: what it belongs to.
        context: what was known.
        eligible: names allowed; None: all that are declared.
        features: of the eligible actions, row after row; None without.
        action: what was drawn.
        p: with which probability.
        reward: 0 to 1; None if it has none.
        links: of a selection: what picking a candidate brings in.
        steps: of a selection: what was done.
    """

    id: UUID
    unit: str
    context: Any
    eligible: list[str] | None
    features: array[float] | list[float] | None
    action: str
    p: float
    reward: float | None
    links: Any = None
    steps: Any = None


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy that is to be judged, with what it takes to ask it.

    Attributes:
        policy: as it was published.
        spec: the declaration that it was made under.
        features: the map of that declaration's context.
        since: decisions made before may be what it was trained from; None: it was frozen from a
            line, whose log is adaptive.
    """

    policy: ChoicePolicy
    spec: DecisionPoint
    features: FeatureMap
    since: datetime | None = None

    @classmethod
    def of(cls, policy: ChoicePolicy, spec: DecisionPoint) -> Candidate:
        """Return a candidate.

        Args:
            policy: as it was published.
            spec: the declaration that it was made under.
        """
        return cls(policy, spec, FeatureMap(spec.context))

    def names(self, logged: LoggedChoice) -> Sequence[str]:
        """Return the actions that its distribution is over.

        Args:
            logged: the decision.
        """
        if logged.eligible is not None and getattr(self.spec.actions, "open", False):
            return logged.eligible
        return tuple(getattr(self.spec.actions, "names", ()))

    def mass(self, logged: LoggedChoice) -> float:
        """Return the probability with which it would have drawn what was drawn; all of a selection.

        Args:
            logged: the decision; what it does not know, or no longer, it would never draw.

        Raises:
            SteersmanError: it cannot decide this one.
        """
        if isinstance(self.spec.actions, SequenceActions):
            return self.whole(logged).mass
        distribution, _ = self.distribution(logged)
        names = list(self.names(logged))
        return float(distribution[names.index(logged.action)]) if logged.action in names else 0.0

    def whole(self, logged: LoggedChoice) -> Whole:
        """Return how it would have drawn a selection, and what the log lacks of its own.

        Args:
            logged: a decision of kind sequence.

        Raises:
            SteersmanError: it cannot decide this one.
        """
        offered = offered_of(logged.eligible, logged.links, logged.features)
        return weigh_whole(cast("SequencePolicy", self.policy), offered, logged.steps)

    def distribution(self, logged: LoggedChoice) -> tuple[Floats, Floats | None]:
        """Return what it would have drawn from, and the vector that it would have seen.

        Args:
            logged: the decision.

        Returns:
            Probabilities over `names`, and ``x`` or None.

        Raises:
            SteersmanError: it cannot decide this one.
        """
        x, key = encode(self.spec, self.features, logged.context)
        seen: Any = x if x is not None else key if key is not None else logged.context
        names, eligible = self.names(logged), logged.eligible
        rows = None
        if logged.features is not None:
            rows = np.asarray(logged.features, dtype=np.float64)
            rows = rows.reshape(len(eligible or names), -1)
        named = not isinstance(self.spec.actions, Mixed) and len(names) > 0
        if eligible is not None and named:
            # What was taken out since, or is not there yet, it would never draw.
            known = [place for place, name in enumerate(eligible) if name in names]
            eligible = [eligible[place] for place in known]
            rows = None if rows is None else rows[known]
        found = self.policy.distribution(seen, eligible=eligible, features=rows)
        if len(found) != len(names) or not np.isclose(found.sum(), 1.0, atol=1e-6):
            message = f"the distribution of {len(found)} actions sums to {found.sum()!r}; expected "
            raise InputError(message + f"{len(names)} probabilities that sum to 1")
        return found, x


async def candidate_of(
    connection: Any, point: PointRow, version: str, bases: Bases
) -> tuple[SnapshotRow, Candidate]:
    """Return a candidate that verified.

    Args:
        connection: within a transaction of the tenant.
        point: its decision point.
        version: of the candidate.
        bases: verifies it.

    Returns:
        Its row, and the policy with the declaration that it was made under.

    Raises:
        RolloutError: it was never published, or was retracted.
        SnapshotError: it does not verify.
        StateError: there is no such snapshot.
    """
    found = await find_snapshot(connection, (point.tenant, point.skill, point.point), version)
    if not found.is_available:
        why = "was retracted" if found.retracted_at is not None else "was never published"
        message = f"{point.skill}/{point.point} {version} {why}; use a version that "
        message += "`steersman snapshot list` shows as published, or publish one"
        raise RolloutError(message)
    spec = await spec_of(connection, found.spec_hash)
    row = replace(
        point,
        snapshot=version,
        spec=spec,
        spec_hash=found.spec_hash,
        feature_hash=found.feature_hash,
    )
    await bases.check(connection, row)
    candidate = Candidate.of(await bases.base(connection, row), spec)
    return found, candidate if holds_line(found) else replace(candidate, since=found.created_at)
