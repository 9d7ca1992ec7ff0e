"""``steersman serve``: service processes over an existing store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from steersman.cli.local_store import close, open_store
from steersman.cli.options import home_option, host_option, port_option, url_of
from steersman.cli.stack import check_port
from steersman.cli.supervisor import stop_with_parent
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
    help="Number of service processes that share the port.",
)
@click.option("--supervised", is_flag=True, hidden=True)
def command(home: Path, host: str, port: int, processes: int, *, supervised: bool) -> None:
    """Run service processes until Ctrl-C or SIGTERM; then finish the open requests.

    The store must be migrated (`steersman doctor --migrate`), and a learner must run
    (`steersman learn run`). Log lines are JSON on standard error.
    """
    # Other commands start faster without uvicorn and its loop.
    from steersman.api.server import serve  # noqa: PLC0415
    from steersman.platform.telemetry.logs import configure_logging  # noqa: PLC0415

    configure_logging()
    # A supervisor checks the port itself, and may restart a child while the old one still listens.
    if port and not supervised:
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
            "a service process did not stop in time and was killed; no acknowledged data is lost, "
            "because requests are stored before they are acknowledged"
        )
