"""Demos of the installed systems: ``steersman demo``."""

from __future__ import annotations

import click

from steersman.cli.lazy_group import LazyGroup


@click.group(cls=LazyGroup, part="demo")
def command() -> None:
    """Run a shipped system from set-up to its report."""
