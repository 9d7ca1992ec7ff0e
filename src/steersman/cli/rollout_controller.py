"""The rollout controller: ``steersman rollout run``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.arguments import Number
from steersman.cli.local_store import close, open_store
from steersman.cli.options import home_option, lending, run
from steersman.cli.signing_keys import git_commit, publisher_of, registry_location
from steersman.cli.supervisor import stop_on_signals, stop_with_parent
from steersman.points.systems import load_part, systems_with
from steersman.registry.bucket import open_place
from steersman.rollouts.error_sources import PrometheusSource, Source
from steersman.workers.rollout_controller import run_controller
from steersman.workers.snapshot_publisher import ShippingSettings, run_shipping

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from steersman.platform.postgres.database import Database


def _gate_modules() -> list[Any]:
    part = "rollout_gates"
    return [load_part(system, part) for system in systems_with(part).values()]


def _gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the installed systems' gates."""
    for module in _gate_modules():
        command = module.gate_options(command)
    return command


@click.command("run")
@home_option
@click.option(
    "--prometheus",
    envvar="STEERSMAN_PROMETHEUS",
    show_envvar=True,
    metavar="URL",
    help="Prometheus server that also counts errors; if it is down or stale, nothing is promoted.",
)
@click.option(
    "--stale-s",
    default=60.0,
    show_default=True,
    type=Number(0, min_open=True),
    help="Maximum age of Prometheus' newest sample, in seconds.",
)
@click.option(
    "--publish-s",
    default=3600.0,
    show_default=True,
    type=Number(0, min_open=True),
    help="Seconds between publications of learned states, for tenants with keys.",
)
@_gate_options
@click.option("--supervised", is_flag=True, hidden=True)
def run_command(
    home: Path, prometheus: str | None, stale_s: float, publish_s: float, *, supervised: bool,
    **gates: Any,
) -> None:  # fmt: skip
    """Run a rollout controller until Ctrl-C or SIGTERM; publish learned states every hour.

    You can run any number of controllers on any machine: one of them moves each rollout. One of
    them publishes, refreshes signed timestamps and anchors the audit log. With --gates, rollouts of
    these points wait until the hard gates of their system hold in --gate-batches batches of
    decisions.
    """
    from steersman.platform.telemetry.logs import configure_logging  # noqa: PLC0415 (for one command)
    from steersman.snapshots.verified_bases import VerifiedBases  # noqa: PLC0415 (for one command)
    from steersman.workers.metrics import ControllerMetrics  # noqa: PLC0415 (for one command)

    configure_logging()
    sources: list[Source] = [
        source for module in _gate_modules() for source in module.gate_sources(gates)
    ]
    if prometheus:
        sources.append(PrometheusSource(prometheus, stale_s=stale_s))
    database = open_store(home)
    bases = VerifiedBases(home)

    async def control(database: Database) -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        place = open_place(registry_location(home)) if _is_written(home) else None
        metrics = ControllerMetrics(database, home, place=place)
        shipping = run_shipping(
            database,
            stop=stop,
            registries=lambda tenant: publisher_of(home, tenant),
            settings=ShippingSettings(publish_s=publish_s, git_commit=git_commit()),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(run_controller(database, stop=stop, sources=sources, bases=bases))
            group.create_task(shipping)
            group.create_task(metrics.run(stop))

    if supervised:
        stop_with_parent()
    try:
        run(lending(database, control))
    finally:
        bases.close()
        close(database)


def _is_written(home: Path) -> bool:
    """Return whether this process could write to the registry."""
    return not registry_location(home).startswith(("http://", "https://"))
