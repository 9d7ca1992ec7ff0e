"""Configuration files that ship with the systems."""

from __future__ import annotations

from pathlib import Path

_PACKAGED = Path(__file__).parent / "configs"
_CHECKOUT = Path(__file__).parents[2] / "configs"


def shipped(name: str) -> Path:
    """Return the path of a shipped configuration file, in the package or a checkout.

    >>> shipped("assistant/route.yaml").name
    'route.yaml'
    """
    return (_PACKAGED if _PACKAGED.is_dir() else _CHECKOUT) / name


def assistant_pipeline() -> Path:
    """Return the path of the pipeline configuration of the assistant."""
    return shipped("pipelines/assistant.yaml")
