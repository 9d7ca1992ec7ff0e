"""``steersman learn``: run the learner; relearn, or verify, what was learned."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from steersman.cli.options import (
    close,
    home_option,
    run,
)
from steersman.cli.supervising import stop_on_signals, stop_with_parent
from steersman.store import Database

if TYPE_CHECKING:
    from pathlib import Path


_skill = click.argument("skill")
_point = click.argument("point")


@click.group()
def command() -> None:
    """Run the learner; relearn or verify what was learned."""


@command.command("run")
@home_option
@click.option("--supervised", is_flag=True, hidden=True)
def run_command(home: Path, *, supervised: bool) -> None:
    """Learn from outcomes until stopped by Ctrl-C or SIGTERM.

    Any number of learners may run, on any machine: each decision point is learned by one of them.
    """
    from steersman.learn import run_learner  # noqa: PLC0415 (slow to import, for one command)
    from steersman.service.logs import configure_logging  # noqa: PLC0415

    configure_logging()
    database = Database.open(home)

    async def learn() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        await run_learner(database, stop=stop)

    if supervised:
        stop_with_parent()
    try:
        run(learn())
    finally:
        close(database)
