"""``steersman status``: state of the service and the store."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import urllib3

from steersman.cli.options import administers, in_store, key_option, url_option
from steersman.cli.output import as_text, show_rows
from steersman.client import ServiceError, UnauthorizedError, UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.db.learners import LearnerState
    from steersman.platform.postgres.database import Database

_SERVED = [
    *("skill", "decision", "algorithm", "snapshot", "update_seq", "replica_seq", "learn_lag_s"),
    *("decisions", "degraded", "rewarded", "mean_reward"),
]
_STORED = ("tenant", "skill", "decision", "snapshot", "updates", "waiting", "learner", "seen")


@click.command()
@url_option
@key_option
@click.option("--states", is_flag=True, help="Also show the SHA-256 of each live state.")
@administers
def command(url: str, api_key: str | None, home: Path, *, states: bool, as_json: bool) -> None:
    """Show every decision point: state, learning, and counts of the last hour.

    With an API key that has the scope read, the command asks the service. If the store is
    reachable (HOME or DATABASE_URL), the command also reads the store, for all tenants. Replicas
    with the same update hold the same state: --states shows its hash, and `steersman learn verify`
    compares it with the log.
    """
    at_hand = bool(os.environ.get("DATABASE_URL")) or (home / "postgres" / "data").is_dir()
    _check(api_key, home, at_hand=at_hand, states=states)
    served, problem = None, None
    try:
        served = None if api_key is None else _ask(url, api_key, states=states)
    except ServiceError as error:
        if not at_hand:
            raise
        problem = error  # raised at the end: the report of the store matters most now
    stored = in_store(home, _look) if at_hand else None
    if as_json:
        click.echo(as_text({"service": served, "store": stored}))
        _raise(problem)
        return
    if served is not None:
        _show(url, served, states=states)
    elif api_key is None:
        click.echo(f"skipped the service at {url}: no API key; set STEERSMAN_API_KEY\n")
    if stored is not None:
        click.echo(f"{'' if served is None else chr(10)}store")
        show_rows(stored, _STORED, as_json=False, none="no decision points declared")
    _raise(problem)


def _check(api_key: str | None, home: Path, *, at_hand: bool, states: bool) -> None:
    if api_key is None and not at_hand:
        raise click.UsageError(
            f"no API key, and no store in {home}; set STEERSMAN_API_KEY or --home"
        )
    if api_key is None and states:
        raise click.UsageError(
            "--states needs the service, and no API key is set; set STEERSMAN_API_KEY"
        )
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        message = "has characters that an API key cannot have; check for a line break at its end"
        raise click.BadParameter(message, param_hint="--api-key")


def _show(url: str, served: dict[str, Any], *, states: bool) -> None:
    click.echo(f"{url} is {served['guardian_state']}; last hour:")
    columns = [*_SERVED, *["replica_sha256"] * states]
    show_rows(served["points"], columns, as_json=False, none="no decision points declared")
    for point in served["points"]:
        if point.get("problem"):
            click.echo(f"{point['skill']}/{point['decision']}: {point['problem']}")


def _raise(problem: ServiceError | None) -> None:
    if problem is not None:
        raise problem


def _ask(url: str, api_key: str, *, states: bool) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {api_key}"}
    fields = {"states": "true"} if states else None
    with urllib3.PoolManager(retries=False, timeout=5.0) as pool:
        try:
            answer = pool.request("GET", f"{url}/rl-status", fields=fields, headers=headers)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            message = f"{url} does not answer ({type(error).__name__}); run `steersman doctor`"
            raise UnavailableError(message) from error
    if answer.status == 200:
        return _read(url, answer.data)
    kind = UnauthorizedError if answer.status in {401, 403} else ServiceError
    said = answer.data.decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError):
        said = str(json.loads(said)["detail"])
    raise kind(f"{url} refused with {answer.status}: {said[:500]}")


def _read(url: str, said: bytes) -> dict[str, Any]:
    """Return the status from a response body, which may come from any web server."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not {"guardian_state", "points"} <= found.keys():
        message = f"the server at {url} is not a Steersman service; set another --url"
        raise UnavailableError(message)
    return found


def _stored(tenant: str, state: LearnerState) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "skill": state.skill,
        "decision": state.point,
        "snapshot": state.snapshot,
        "updates": state.seq,
        "learner": state.holder,
        "seen": state.seen_at,
        "waiting": state.waiting,
    }


async def _look(database: Database) -> list[dict[str, Any]]:
    # Slow, and only needed to read the store; see `options`.
    from steersman.db.learners import learner_states  # noqa: PLC0415
    from steersman.db.tenants import list_tenants  # noqa: PLC0415
    from steersman.platform.postgres.database import as_tenant  # noqa: PLC0415

    connection = await database.connect("app")
    try:
        rows = []
        for tenant in await list_tenants(database):
            async with as_tenant(connection, tenant.id):
                found = await learner_states(connection)
            rows += [_stored(tenant.name, one) for one in found]
        return rows
    finally:
        await connection.close()
