"""Verified candidate, and its distribution on logged decisions of control."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from steersman.db.decisions import offered_of
from steersman.db.rewards import spec_of
from steersman.db.snapshots import find_snapshot
from steersman.errors import InputError, RolloutError
from steersman.features import FeatureMap
from steersman.learning.candidates import holds_line
from steersman.points.feature_encoding import encode
from steersman.policies.sequential import weigh_whole
from steersman.spec.actions import Mixed
from steersman.spec.actions import Sequence as SequenceActions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from steersman.db.logged_choices import LoggedChoice
    from steersman.db.points import PointRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.learning.replica import Bases
    from steersman.policies import ChoicePolicy
    from steersman.policies.sequential import SequencePolicy, Whole
    from steersman.spec.point import DecisionPoint

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Candidate:
    """Candidate policy with its declaration.

    Attributes:
        policy: published policy.
        spec: declaration of the published version.
        features: feature map of the declaration's context.
        since: earlier decisions may be its training data; None: frozen from a lineage, whose log is
            adaptive.
    """

    policy: ChoicePolicy
    spec: DecisionPoint
    features: FeatureMap
    since: datetime | None = None

    @classmethod
    def of(cls, policy: ChoicePolicy, spec: DecisionPoint) -> Candidate:
        """Return a candidate."""
        return cls(policy, spec, FeatureMap(spec.context))

    def names(self, logged: LoggedChoice) -> Sequence[str]:
        """Return the actions of its distribution."""
        if logged.eligible is not None and getattr(self.spec.actions, "open", False):
            return logged.eligible
        return tuple(getattr(self.spec.actions, "names", ()))

    def mass(self, logged: LoggedChoice) -> float:
        """Return its probability of the drawn action or of the whole selection.

        Args:
            logged: the decision; an action unknown to the candidate has probability 0.

        Raises:
            SteersmanError: the candidate cannot decide it.
        """
        if isinstance(self.spec.actions, SequenceActions):
            return self.whole(logged).mass
        distribution, _ = self.distribution(logged)
        names = list(self.names(logged))
        return float(distribution[names.index(logged.action)]) if logged.action in names else 0.0

    def whole(self, logged: LoggedChoice) -> Whole:
        """Return its probability of a selection, and of selections that the log could not draw.

        Raises:
            SteersmanError: the candidate cannot decide it.
        """
        offered = offered_of(logged.eligible, logged.links, logged.features)
        return weigh_whole(cast("SequencePolicy", self.policy), offered, logged.steps)

    def distribution(self, logged: LoggedChoice) -> tuple[Floats, Floats | None]:
        """Return its distribution for a decision, and its encoded context.

        Returns:
            Probabilities over `names`, and ``x`` or None.

        Raises:
            SteersmanError: the candidate cannot decide it.
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
            # It never draws actions that it does not have: removed or newly declared ones.
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
    """Return a verified candidate with the row of its snapshot.

    Raises:
        RolloutError: the version is not published or was retracted.
        SnapshotError: it does not verify.
        StateError: unknown snapshot.
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
