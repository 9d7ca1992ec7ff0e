"""Decision points of the assistant: cache, route and tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.errors import DataError
from steersman.spec.loader import load
from steersman_systems.configs import shipped

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.spec.point import DecisionPoint


@dataclass(frozen=True, slots=True)
class Points:
    """Declared decision points, in the order of a request.

    Args:
        cache: Choice of the cache tier.
        route: Choice of the engine after a cache miss; its reward is that of the whole request.
        tool: Choice of the tool on the planner route.
    """

    cache: DecisionPoint
    route: DecisionPoint
    tool: DecisionPoint


def load_points(folder: Path | None = None) -> Points:
    """Read the three decision points from their YAML files.

    Args:
        folder: Folder with cache.yaml, route.yaml and tool.yaml; ``None`` for the shipped files.

    Raises:
        DataError: The folder is missing.
        SpecError: A file is not a valid declaration.

    >>> load_points().route.actions.names
    ('micro', 'planner', 'deep')
    """
    return Points(*(load(file) for file in _files(folder)))


def point_documents(folder: Path | None = None) -> tuple[str, str, str]:
    """Return the three declarations as texts, for declaring them to a service.

    Raises:
        DataError: The folder is missing.

    >>> "decision: cache" in point_documents()[0]
    True
    """
    cache, route, tool = (file.read_text(encoding="utf-8") for file in _files(folder))
    return cache, route, tool


def _files(folder: Path | None) -> list[Path]:
    if folder is None:
        folder = shipped("assistant")
    if not folder.is_dir():
        message = (
            f"{folder} is not a folder; give a folder with cache.yaml, route.yaml and tool.yaml"
        )
        raise DataError(message)
    return [folder / f"{name}.yaml" for name in ("cache", "route", "tool")]
