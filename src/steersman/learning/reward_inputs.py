"""Evidence of a batch: decisions, declarations, events and learned state."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.db.rewards import (
    decisions_to_credit,
    erased_among,
    events_about,
    learned_of,
    spec_of,
)
from steersman.errors import SteersmanError
from steersman.learning.credit import Course

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.rewards import CreditedUpdate, RewardDecision
    from steersman.spec.point import DecisionPoint


@dataclass(slots=True)
class Evidence:
    """Stored facts about some decisions of one point.

    Attributes:
        decisions: existing decisions by id.
        learned: rewards that the snapshot learned, by decision.
        erased: ids of erased decisions.
        specs: declarations by hash, or the error that explains why one is missing.
    """

    decisions: dict[UUID, RewardDecision]
    learned: dict[UUID, CreditedUpdate]
    erased: set[UUID]
    specs: dict[bytes, DecisionPoint | SteersmanError]
    _own: dict[UUID | None, Course]
    _of_episode: dict[str | None, Course]

    def spec(self, decided: RewardDecision) -> DecisionPoint:
        """Return the declaration of a decision.

        Raises:
            SteersmanError: the declaration is missing or unreadable.
        """
        found = self.specs[decided.spec_hash]
        if isinstance(found, SteersmanError):
            raise found
        return found

    def came_back(self, decided: RewardDecision) -> bool:
        """Return whether a learned decision was resent after its day left the hot tables.

        Its earlier rewards and events are only in the cold store, so its reward cannot be
        recomputed without new events.
        """
        return (
            decided.status is None
            and decided.id in self.learned
            and not any(one.outcomes or one.action_taken for one in self.about(decided))
        )

    def about(self, decided: RewardDecision) -> Course:
        """Return the events that may change the reward of a decision, in time order."""
        if decided.episode is not None and _by_episode(self.specs[decided.spec_hash]):
            return self._of_episode[decided.episode]
        return self._own[decided.id]


async def read_evidence(
    connection: Any, row: PointRow, snapshot: str, ids: Sequence[UUID]
) -> Evidence:
    """Read all inputs of the rewards of some decisions."""
    point = row.tenant, row.skill, row.point
    decisions = await decisions_to_credit(connection, point, snapshot, ids)
    specs: dict[bytes, DecisionPoint | SteersmanError] = {}
    for spec_hash in {decided.spec_hash for decided in decisions.values()}:
        specs[spec_hash] = await _spec(connection, row, spec_hash)
    episodes = {
        decided.episode
        for decided in decisions.values()
        if decided.episode is not None and _by_episode(specs[decided.spec_hash])
    }
    own: dict[UUID | None, Course] = defaultdict(Course)
    of_episode: dict[str | None, Course] = defaultdict(Course)
    for event in await events_about(connection, row.tenant, ids, sorted(episodes)):
        own[event.decision].append(event)
        of_episode[event.episode].append(event)
    gone = [identifier for identifier in ids if identifier not in decisions]
    erased = await erased_among(connection, row.tenant, gone) if gone else set()
    learned = await learned_of(connection, point, snapshot, ids)
    return Evidence(decisions, learned, erased, specs, own, of_episode)


async def _spec(connection: Any, row: PointRow, spec_hash: bytes) -> DecisionPoint | SteersmanError:
    if spec_hash == row.spec_hash:
        return row.spec
    try:
        return await spec_of(connection, spec_hash)
    except SteersmanError as error:
        return error


def _by_episode(spec: DecisionPoint | SteersmanError) -> bool:
    return not isinstance(spec, SteersmanError) and spec.reward.scope == "episode"
