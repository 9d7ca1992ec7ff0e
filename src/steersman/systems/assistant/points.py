"""The assistant's three declared decision points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.errors import DataError
from steersman.spec import load
from steersman.spec.reading import shipped

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.spec import DecisionPoint


@dataclass(frozen=True, slots=True)
class Points:
    """What the assistant decides, in the order in which a request meets it.

    Args:
        cache: Which cache tier is looked up.
        route: Which engine answers when no tier did; its reward is that of the whole request.
        tool: Which tool serves it when the route is the planner.
    """

    cache: DecisionPoint
    route: DecisionPoint
    tool: DecisionPoint


def load_points(folder: Path | None = None) -> Points:
    """The three decision points from their YAML files.

    Args:
        folder: Holds cache.yaml, route.yaml and tool.yaml; ``None`` for those that are shipped.

    Returns:
        The declared points.

    Raises:
        DataError: There is no such folder.
        SpecError: A file is not a valid declaration.

    >>> load_points().route.actions.names
    ('micro', 'planner', 'deep')
    """
    return Points(*(load(file) for file in _files(folder)))


def point_documents(folder: Path | None = None) -> tuple[str, str, str]:
    """The three declarations as texts, to declare them to a service.

    Args:
        folder: As in `load_points`.

    Returns:
        The YAML of cache, route and tool.

    Raises:
        DataError: There is no such folder.

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
            f"{folder} is no folder; give the one that holds cache.yaml, route.yaml and tool.yaml"
        )
        raise DataError(message)
    return [folder / f"{name}.yaml" for name in ("cache", "route", "tool")]
