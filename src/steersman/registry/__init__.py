"""Snapshots: states as bytes that depend on the state alone, and what makes them safe to ship."""

from __future__ import annotations

from steersman.registry.states import pack_state, unpack_state

__all__ = ["pack_state", "unpack_state"]
