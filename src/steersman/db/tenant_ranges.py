"""Tenant ranges of a sorted batch, for the SQL functions."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID


def slices(tenants: Sequence[UUID]) -> tuple[list[UUID], list[int], list[int]]:
    """Return the distinct tenants, and the first and last index of each, from 1.

    >>> from uuid import UUID
    >>> slices([UUID(int=1), UUID(int=1), UUID(int=2)])[1:]
    ([1, 3], [2, 3])
    """
    names: list[UUID] = []
    firsts: list[int] = []
    lasts: list[int] = []
    place = 0
    for tenant, group in groupby(tenants):
        names.append(tenant)
        firsts.append(place + 1)
        place += sum(1 for _ in group)
        lasts.append(place)
    return names, firsts, lasts
