"""Snapshots: packing, signing, publishing, loading and comparing policy states.

Names are resolved on first use. So a process that serves a snapshot does not import off-policy
evaluation, and a command that lists API keys does not import policies and scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from steersman.registry.description import Description, Published, describe
from steersman.registry.eigenvalues import largest_eigenvalue
from steersman.registry.guard import Measures, guard, measure
from steersman.registry.states import pack_state, state_sha256, unpack_state
from steersman.registry.versions import Ingredients, Version, change_between, next_version

if TYPE_CHECKING:
    from steersman.registry.bucket import BucketPlace, open_place
    from steersman.registry.comparing import Diff, diff
    from steersman.registry.consumer import Consumer
    from steersman.registry.keys import Keys
    from steersman.registry.listing import manifest
    from steersman.registry.loaded import Anchor, Loaded
    from steersman.registry.merging import delta_id, gather, merge_states
    from steersman.registry.paired import OffPolicyDelta, off_policy_delta
    from steersman.registry.place import DirectoryPlace, Held, Place
    from steersman.registry.reference import Reference
    from steersman.registry.repository import Publisher
    from steersman.registry.snapshot import check_state, pack_snapshot, unpack_snapshot
    from steersman.registry.standings import Standing
    from steersman.registry.updating import Refreshed
    from steersman.registry.whole_selections import Whole, weigh_whole
    from steersman.registry.writing import Freshness

__all__ = [
    "Anchor",
    "BucketPlace",
    "Consumer",
    "Description",
    "Diff",
    "DirectoryPlace",
    "Freshness",
    "Held",
    "Ingredients",
    "Keys",
    "Loaded",
    "Measures",
    "OffPolicyDelta",
    "Place",
    "Published",
    "Publisher",
    "Reference",
    "Refreshed",
    "Standing",
    "Version",
    "Whole",
    "change_between",
    "check_state",
    "delta_id",
    "describe",
    "diff",
    "gather",
    "guard",
    "largest_eigenvalue",
    "manifest",
    "measure",
    "merge_states",
    "next_version",
    "off_policy_delta",
    "open_place",
    "pack_snapshot",
    "pack_state",
    "state_sha256",
    "unpack_snapshot",
    "unpack_state",
    "weigh_whole",
]

_HOMES = {
    "merging": "delta_id gather merge_states",
    "snapshot": "check_state pack_snapshot unpack_snapshot",
    "whole_selections": "Whole weigh_whole",
    "listing": "manifest",
    "updating": "Refreshed",
    "loaded": "Anchor Loaded",
    "consumer": "Consumer",
    "place": "DirectoryPlace Held Place",
    "bucket": "BucketPlace open_place",
    "keys": "Keys",
    "writing": "Freshness",
    "repository": "Publisher",
    "standings": "Standing",
    "comparing": "Diff diff",
    "paired": "OffPolicyDelta off_policy_delta",
    "reference": "Reference",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
