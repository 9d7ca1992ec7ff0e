"""Live view of decision points and rollouts: ``steersman monitor``."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.live import Live

from steersman.cli.arguments import Number
from steersman.cli.monitor_frame import draw
from steersman.cli.monitor_service import Scraper
from steersman.cli.monitor_values import Frame, read_tenant
from steersman.cli.options import administers, in_store, url_option
from steersman.cli.output import as_text
from steersman.db.tenants import list_tenants
from steersman.errors import StoreError
from steersman.platform.postgres.database import AWAY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from steersman.platform.postgres.database import Database

_PIPE_COLUMNS = 100


@click.command()
@click.option("--once", is_flag=True, help="Show one frame and exit.")
@click.option(
    "--interval",
    "interval_s",
    default=2.0,
    show_default=True,
    type=Number(min=0.2),
    help="Seconds between frames.",
)
@click.option("--tenant", "tenant_name", help="Tenant name.  [default: all]")
@click.option(
    "--window",
    "window_s",
    default=3600.0,
    show_default=True,
    type=Number(min=1.0),
    help="Time window of the figures, in seconds.",
)
@url_option
@administers
def command(
    interval_s: float,
    tenant_name: str | None,
    window_s: float,
    url: str,
    home: Path,
    *,
    once: bool,
    as_json: bool,
) -> None:
    """Monitor all decision points and active rollouts, until Ctrl-C.

    Traffic, reward, success, errors, latency and cost come from the database (HOME or
    DATABASE_URL). The state of the service comes from its metrics, if they are reachable. With
    --json each frame is a JSON object on one line; --once indents it.
    """

    async def watch(database: Database) -> None:
        watching = _Watching(database, tenant_name, window_s, Scraper(url))
        try:
            if once:
                _print(await watching.look(), as_json=as_json)
            elif as_json:
                await _repeat(watching, interval_s, lambda frame: click.echo(_line(frame)))
            else:
                await _live(watching, interval_s)
        finally:
            await watching.close()

    with suppress(KeyboardInterrupt):
        in_store(home, watch)


class _Watching:
    """Reads frames over one connection, and reconnects if it is lost."""

    def __init__(
        self, database: Database, tenant: str | None, window_s: float, scraper: Scraper
    ) -> None:
        self._database = database
        self._tenant = tenant
        self._window_s = window_s
        self._scraper = scraper
        self._connection: Any = None

    async def look(self) -> Frame:
        """Return a frame; raise if the database does not answer."""
        tenants = await list_tenants(self._database)
        if self._tenant is not None:
            tenants = [one for one in tenants if one.name == self._tenant]
            if not tenants:
                message = f"tenant not found: {self._tenant!r}; `steersman tenant list` lists all"
                raise StoreError(message)
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect("app")
        now = time.time()
        views = [await read_tenant(self._connection, one, now, self._window_s) for one in tenants]
        service = await asyncio.to_thread(self._scraper.look)
        return Frame(datetime.fromtimestamp(now, UTC), self._window_s, service, tuple(views))

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(*AWAY):
                await self._connection.close(timeout=1)


async def _live(watching: _Watching, interval_s: float) -> None:
    console = Console()
    footer = f"every {interval_s:g} s · Ctrl-C to exit"
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(frame: Frame) -> None:
            live.update(draw(frame, console.width, footer=footer), refresh=True)

        await _repeat(watching, interval_s, show)


async def _repeat(watching: _Watching, interval_s: float, show: Callable[[Frame], None]) -> None:
    """Show frames without end; while the database is unavailable, the last one and the error."""
    frame = await watching.look()
    while True:
        show(frame)
        await asyncio.sleep(interval_s)
        try:
            frame = await watching.look()
        except (StoreError, *AWAY) as error:
            frame = replace(frame, at=datetime.now(UTC), away=f"{error!s:.200}" or repr(error))


def _print(frame: Frame, *, as_json: bool) -> None:
    if as_json:
        click.echo(as_text(frame))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_COLUMNS)
    console.print(draw(frame, console.width))


def _line(frame: Frame) -> str:
    return json.dumps(json.loads(as_text(frame)))
