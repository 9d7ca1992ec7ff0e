"""``steersman serve``: service processes over a store that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from steersman.cli.opening import close, open_store
from steersman.cli.options import home_option, host_option, port_option, url_of
from steersman.cli.stack import check_port
from steersman.cli.supervising import stop_with_parent
from steersman.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@home_option
@host_option
@port_option
@click.option(
    "--processes",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="How many share the port.",
)
@click.option("--supervised", is_flag=True, hidden=True)
def command(home: Path, host: str, port: int, processes: int, *, supervised: bool) -> None:
    """Answer requests until stopped by Ctrl-C or SIGTERM; then finish what was begun.

    The store must be migrated (`steersman doctor --migrate`), and a learner must run somewhere
    (`steersman learn run`). Log lines are JSON on standard error.
    """
    # uvicorn and its loop are imported by who serves alone.
    from steersman.service import configure_logging, serve  # noqa: PLC0415

    configure_logging()
    if port and not supervised:  # its supervisor has looked, and may start it beside the last one
        check_port(host, port)
    database = open_store(home)
    if supervised:
        stop_with_parent()

    def ready(number: int) -> None:
        click.echo(f"serving {url_of(host, number)}", err=True)

    try:
        status = serve(database, home, host=host, port=port, processes=processes, ready=ready)
    except (OSError, UnicodeError) as error:
        message = f"cannot listen on {host}:{port}: {error}; choose another --host or --port"
        raise StoreError(message) from error
    finally:
        close(database)
    if status:
        raise StoreError(
            "a process did not end in time and was killed; what it had not yet stored "
            "was not acknowledged either"
        )
