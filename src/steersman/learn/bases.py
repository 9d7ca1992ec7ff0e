"""Where the first state of a line comes from: the state that its updates are applied to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from steersman.policies import load_policy
from steersman.registry import unpack_state
from steersman.store import base_state

if TYPE_CHECKING:
    from steersman.policies import ChoicePolicy
    from steersman.store import PointRow


class Bases(Protocol):
    """Gives the policy that a snapshot starts from, or refuses it."""

    async def check(self, connection: Any, row: PointRow) -> None:
        """Refuse the base of ``row.snapshot`` if it must not be served.

        It is asked before a checkpoint takes the base's place.

        Args:
            connection: within a transaction of the tenant.
            row: the point, with the snapshot that is wanted.

        Raises:
            SteersmanError: it must not.
        """

    async def base(self, connection: Any, row: PointRow) -> ChoicePolicy:
        """Return the policy that ``row.snapshot`` starts from, before its first update.

        Args:
            connection: within a transaction of the tenant.
            row: the point, with the snapshot that is wanted.

        Returns:
            A policy of its own.

        Raises:
            SteersmanError: there is none, or it must not be loaded.
        """


class StoredBases:
    """Bases as the store holds them, for who trusts the store: its bytes fit their hash."""

    async def check(self, connection: Any, row: PointRow) -> None:
        """Refuse nothing.

        Args:
            connection: within a transaction of the tenant.
            row: the point.
        """

    async def base(self, connection: Any, row: PointRow) -> ChoicePolicy:
        """Return the policy of the snapshot's row.

        Args:
            connection: within a transaction of the tenant.
            row: the point, with the snapshot that is wanted.

        Returns:
            A policy of its own.

        Raises:
            StateError: there is no such snapshot, or its bytes are not those that were stored.
        """
        point = row.tenant, row.skill, row.point
        state = await base_state(connection, point, row.snapshot)
        return await asyncio.to_thread(lambda: load_policy(unpack_state(state)))
