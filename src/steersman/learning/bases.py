"""Base states: the policy state that a snapshot's updates start from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from steersman.db.updates import base_state
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import unpack_state

if TYPE_CHECKING:
    from steersman.db.points import PointRow
    from steersman.policies import ChoicePolicy


class Bases(Protocol):
    """Source of base states for replicas."""

    async def check(self, connection: Any, row: PointRow) -> None:
        """Raise an error if the base of ``row.snapshot`` must not be used.

        Called before a checkpoint replaces the base.

        Raises:
            SteersmanError: the base must not be used.
        """

    async def base(self, connection: Any, row: PointRow) -> ChoicePolicy:
        """Return the policy of ``row.snapshot`` before its first update.

        Raises:
            SteersmanError: the base is missing or must not be loaded.
        """


class StoredBases:
    """Base states from the database, checked by hash only."""

    async def check(self, connection: Any, row: PointRow) -> None:
        """Accept every base."""

    async def base(self, connection: Any, row: PointRow) -> ChoicePolicy:
        """Return the policy from the snapshot row.

        Raises:
            StateError: the snapshot is missing or its bytes do not match their hash.
        """
        point = row.tenant, row.skill, row.point
        state = await base_state(connection, point, row.snapshot)
        return await asyncio.to_thread(lambda: load_policy(unpack_state(state)))
