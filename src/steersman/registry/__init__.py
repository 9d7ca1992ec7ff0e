"""Snapshots: states as bytes that depend on the state alone, and what makes them safe to ship."""

from __future__ import annotations

from steersman.registry.description import Description, Published, describe
from steersman.registry.eigenvalues import largest_eigenvalue
from steersman.registry.guard import Measures, guard, measure
from steersman.registry.merging import delta_id, gather, merge_states
from steersman.registry.snapshot import check_state, pack_snapshot, unpack_snapshot
from steersman.registry.states import pack_state, unpack_state
from steersman.registry.versions import Ingredients, Version, change_between, next_version

__all__ = [
    "Description",
    "Ingredients",
    "Measures",
    "Published",
    "Version",
    "change_between",
    "check_state",
    "delta_id",
    "describe",
    "gather",
    "guard",
    "largest_eigenvalue",
    "measure",
    "merge_states",
    "next_version",
    "pack_snapshot",
    "pack_state",
    "unpack_snapshot",
    "unpack_state",
]
