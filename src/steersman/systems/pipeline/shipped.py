"""The systems that a pipeline is shipped for, and what they decide."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (of a field)
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class System:
    """A shipped system, as its pipeline sees it.

    Attributes:
        name: as commands call it; ``configs/pipelines/<name>.yaml`` is its configuration.
        skill: its application capability.
        points: its decision points, in the order in which a request meets them.
        old_names: what points were called in configurations before, and are called now.
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
"""By name."""
