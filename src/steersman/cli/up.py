"""``steersman up``: all processes on one machine."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from steersman.cli import stack
from steersman.cli.local_store import close, open_store
from steersman.cli.options import home_option, host_option, json_option, port_option, run, url_of
from steersman.cli.signing_keys import make_sample_registry
from steersman.cli.supervisor import Supervisor, stop_on_signals, stop_with_parent
from steersman.errors.install_hint import how_to_install
from steersman.points.systems import load_part, systems_with

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from steersman.points.systems import System

_MADE_KEYS = (
    "created signing keys for tenant {name}; before production, move root.pem from "
    "{home}/keys/{name} offline, and the passphrase in {file} to another place"
)


@click.command()
@home_option
@host_option
@port_option
@click.option(
    "--processes",
    default=2,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Number of service processes that share the port.",
)
@click.option(
    "--tenant",
    "tenant_name",
    default="sample",
    show_default=True,
    help="Tenant name; created if it does not exist.",
)
@click.option(
    "--cold",
    envvar="STEERSMAN_COLD",
    show_envvar=True,
    help="Target of compaction: a directory or s3://bucket/prefix.  [default: HOME/cold]",
)
@json_option
@click.option("--supervised", is_flag=True, hidden=True)
def command(
    home: Path,
    host: str,
    port: int,
    processes: int,
    tenant_name: str,
    cold: str | None,
    *,
    as_json: bool,
    supervised: bool,
) -> None:
    """Run the whole service until Ctrl-C or SIGTERM.

    It runs the store (embedded, unless DATABASE_URL names a server), the service processes on one
    port, the learner, the controller (rollouts and publishing) and the janitor (partitions and
    daily compaction). The first run creates a tenant with the decision points of the installed
    sample systems, signing keys, and an API key. The API key is printed once.
    """
    if supervised:
        stop_with_parent()
    with stack.alone(home):
        port = port or stack.free_port(host)
        stack.check_port(host, port)
        database = open_store(home, make=True)
        try:
            prepared = run(stack.prepare(database, home, tenant_name, _sample_documents()))
            passphrase = make_sample_registry(home, tenant_name)
            if passphrase is not None:
                click.echo(
                    _MADE_KEYS.format(home=home, name=tenant_name, file=passphrase), err=True
                )
            children = (
                stack.service_child(home, host, port, processes=processes),
                stack.learner_child(home),
                stack.controller_child(home),
                stack.janitor_child(home, cold),
            )
            supervisor = Supervisor(
                children, home / "logs", lambda text: click.echo(text, err=True)
            )
            asyncio.run(_serve(supervisor, home, url_of(host, port), prepared, as_json=as_json))
        finally:
            close(database)
    click.echo("stopped", err=True)


def _samples() -> list[System]:
    return [system for system in systems_with("documents").values() if system.sample]


def _sample_documents() -> list[str]:
    """Return the declarations of the installed sample systems, as YAML texts."""
    return [text for system in _samples() for text in load_part(system, "documents")()]


async def _serve(
    supervisor: Supervisor, home: Path, url: str, prepared: stack.Prepared, *, as_json: bool
) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    running = asyncio.ensure_future(supervisor.run(stop))
    try:
        await asyncio.to_thread(
            stack.wait_until_ready, [url], lambda: not stop.is_set(), home / "logs"
        )
        if not stop.is_set():
            (_as_json if as_json else _as_text)(home, url, prepared, supervisor)
        await running
    finally:
        stop.set()
        await running


def _as_json(home: Path, url: str, prepared: stack.Prepared, supervisor: Supervisor) -> None:
    told = {
        "url": url,
        "key": prepared.key,
        "tenant": prepared.tenant.name,
        "home": str(home.absolute()),
        "points": [f"{row.skill}/{row.point}" for row in prepared.points],
        "renewed": [f"{row.skill}/{row.point}" for row in prepared.renewed],
        "processes": _pids(supervisor),
    }
    click.echo(json.dumps(told))


def _as_text(home: Path, url: str, prepared: stack.Prepared, supervisor: Supervisor) -> None:
    names = ", ".join(f"{row.skill}/{row.point}" for row in prepared.points)
    kept = str(home / "cold") if stack.can_compact() else f"off; {how_to_install('data')}"
    click.echo(f"serving     {url}")
    click.echo(f"tenant      {prepared.tenant.name} with {names}")
    at = "" if str(home) == ".steersman" else f" --home {home}"
    if prepared.key is None:
        click.echo(
            "key         created earlier and not shown again; create another: "
            f"steersman key create NAME --tenant {prepared.tenant.name}{at} "
            "--scope decide --scope events --scope read"
        )
    else:
        click.echo(f"key         {prepared.key}   (shown only once)")
    for row in prepared.renewed:
        click.echo(
            f"reset       {row.skill}/{row.point}: this version encodes its contexts differently; "
            "relearn it from the log: "
            f"steersman learn rebuild {row.skill} {row.point} --tenant {prepared.tenant.name}{at}"
        )
    click.echo(f"processes   {', '.join(f'{n} {pid}' for n, pid in _pids(supervisor).items())}")
    click.echo(f"compaction  {kept}")
    click.echo(f"logs        {home / 'logs'}")
    for system in _samples():
        if system.sample_request is not None:
            curl = _curl(url, prepared.key or "$STEERSMAN_API_KEY", system.sample_request)
            click.echo(f"\nTry it:\n\n{curl}\n")
    click.echo("Ctrl-C stops all processes.")


def _pids(supervisor: Supervisor) -> dict[str, int]:
    return {c.name: c.process.pid for c in supervisor.children if c.process is not None}


def _curl(url: str, key: str, body: Mapping[str, Any]) -> str:
    return (
        f'  curl -s {url}/v1/decide -H "Authorization: Bearer {key}" \\\n'
        f"    -H 'Content-Type: application/json' -d '{json.dumps(dict(body))}'"
    )
