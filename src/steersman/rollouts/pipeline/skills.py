"""Shipped systems that have a pipeline."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (of a field)
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class System:
    """Shipped system with a pipeline.

    Attributes:
        name: name in commands; ``configs/pipelines/<name>.yaml`` is its configuration.
        skill: its application capability.
        points: its decision points, in the order of a request.
        old_names: names of decision points in old configurations, and their current names.
    """

    name: str
    skill: str
    points: tuple[str, ...]
    old_names: Mapping[str, str] = field(default_factory=dict)


SYSTEMS = {
    "assistant": System(
        "assistant",
        "assistant",
        ("cache", "route", "tool"),
        {"routing": "route", "tools": "tool"},
    )
}
"""Shipped systems by name."""
