"""``steersman decide``: one decision of a running service."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from steersman.cli.arguments import JsonObject, Number
from steersman.cli.options import json_option, key_option, url_option
from steersman.cli.showing import show
from steersman.client import Client


@click.command()
@click.argument("skill")
@click.argument("point")
@click.option("--context", type=JsonObject(), default="{}", help="What is known, by field name.")
@click.option("--eligible", multiple=True, help="An action that is allowed; again for more.")
@click.option(
    "--features", type=JsonObject(), help="For each eligible action a list of numbers, by its name."
)
@click.option("--links", type=JsonObject(), help="By candidate, what picking it brings in.")
@click.option("--episode", help="What this decision belongs to with others.")
@click.option("--unit", help="What stays on one arm of a rollout.")
@click.option(
    "--default",
    "defaults",
    multiple=True,
    help="The action to take if no service answers; of a selection, a candidate: again for more, "
    "and --picks where it is one alone.",
)
@click.option("--picks", is_flag=True, help="The point selects: --default is a list.")
@click.option(
    "--timeout-ms",
    type=Number(1, 600_000),
    default=2000,
    show_default=True,
    help="For the whole call; the service may take a third of it to store the decision.",
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
    """Ask the service what to do at the decision POINT of SKILL."""
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
