"""Demos of the installed systems: ``steersman demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from steersman.cli.lazy_group import LazyGroup
from steersman.points.systems import systems_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.points.systems import Command


def _demos() -> Mapping[str, Command]:
    return {
        name: found
        for system in systems_with("demo").values()
        for name, found in system.demo.items()
    }


@click.group(cls=LazyGroup, commands_of=_demos)
def command() -> None:
    """Run a shipped system from set-up to its report."""
