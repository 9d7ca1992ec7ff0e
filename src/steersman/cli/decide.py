"""One decision from a running service: ``steersman decide``."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from steersman.cli.arguments import JsonObject, Number
from steersman.cli.options import json_option, key_option, url_option
from steersman.cli.output import show
from steersman.client import Client


@click.command()
@click.argument("skill")
@click.argument("point")
@click.option("--context", type=JsonObject(), default="{}", help="Context fields as a JSON object.")
@click.option("--eligible", multiple=True, help="Eligible action. Repeatable.  [default: all]")
@click.option(
    "--features", type=JsonObject(), help="JSON object: a list of numbers for each eligible action."
)
@click.option(
    "--links",
    type=JsonObject(),
    help="JSON object: for each candidate, the candidates that picking it adds.",
)
@click.option("--episode", help="Episode id that groups this decision with others.")
@click.option("--unit", help="Unit id (user, session, episode) that stays on one arm of a rollout.")
@click.option(
    "--default",
    "defaults",
    multiple=True,
    help="Action to use if no service answers. For a selection: a candidate, repeatable; add "
    "--picks if there is only one.",
)
@click.option(
    "--picks", is_flag=True, help="Treat --default as a list: the point selects candidates."
)
@click.option(
    "--timeout-ms",
    type=Number(1, 600_000),
    default=2000,
    show_default=True,
    help="Timeout of the call in milliseconds; the service may use a third of it to store the "
    "decision.",
)
@url_option
@key_option
@json_option
def command(
    skill: str,
    point: str,
    context: dict[str, Any],
    eligible: tuple[str, ...],
    features: dict[str, Any] | None,
    links: dict[str, Any] | None,
    episode: str | None,
    unit: str | None,
    defaults: tuple[str, ...],
    timeout_ms: float,
    url: str,
    api_key: str | None,
    *,
    picks: bool,
    as_json: bool,
) -> None:
    """Request a decision at POINT of SKILL from the service."""
    selects = picks or links is not None or len(defaults) > 1
    default = list(defaults) if selects and defaults else "".join(defaults) or None
    with Client(url, api_key) as client:
        decision = client.decide(
            skill,
            point,
            context,
            eligible=eligible or None,
            features=features,
            links=links,
            episode=episode,
            unit=unit,
            default=default,
            timeout_ms=timeout_ms,
        )
    answer: dict[str, Any] = msgspec.to_builtins(decision)
    show(answer, as_json=as_json)
