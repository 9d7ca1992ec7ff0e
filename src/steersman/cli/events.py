"""``steersman events``: what came of decisions, told to a running service."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
from rich.console import Console
from rich.progress import track

from steersman.cli.decide import JsonObject
from steersman.cli.options import json_option, key_option, url_option
from steersman.cli.showing import show
from steersman.client import Client
from steersman.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

F = TypeVar("F", bound="Callable[..., Any] | click.Command")
_TYPES = ("interaction.create", "interaction.output", "feedback.submit", "task_result")
_METHODS = {"feedback.submit": "submit_feedback", "task_result": "task_result"}
_FIELDS = {"type", "decision_id", "episode_id", "outcomes", "action_taken", "body", "at"}
_FIELDS |= {"event_id", "schema_version"}


def _waiting(seconds: float) -> Callable[[F], F]:
    return click.option(
        "--wait-s",
        type=click.FloatRange(min=0),
        default=seconds,
        show_default=True,
        help="How long to wait for delivery; what is left then is kept on disk.",
    )


@click.group()
def command() -> None:
    """Tell the service what came of its decisions."""


@command.command()
@click.argument("kind", type=click.Choice(_TYPES), metavar="TYPE")
@click.option("--decision", type=click.UUID, help="The id of the decision it is about ...")
@click.option("--episode", help="... or the episode.")
@click.option("--outcomes", type=JsonObject(), default="{}", help="Named numbers.")
@click.option("--body", type=JsonObject(), default="{}", help="Anything else worth keeping.")
@click.option("--action-taken", help="What was done, if not what was decided.")
@click.option("--event-id", help="Of your own; the same id and body are stored once.")
@_waiting(10.0)
@url_option
@key_option
@json_option
def send(
    kind: str,
    decision: UUID | None,
    episode: str | None,
    outcomes: dict[str, float],
    body: dict[str, Any],
    action_taken: str | None,
    event_id: str | None,
    wait_s: float,
    url: str,
    api_key: str | None,
    *,
    as_json: bool,
) -> None:
    """Send one event of TYPE: interaction.create, interaction.output, feedback.submit, task_result.

    It is kept on disk until it was delivered; what could not be delivered now goes with the next
    use of the same key.
    """
    about = None if decision is None else str(decision)
    event = {"type": kind, "decision_id": about, "episode_id": episode, "outcomes": outcomes}
    event |= {"body": body, "action_taken": action_taken, "event_id": event_id}
    _deliver([event], url, api_key, wait_s, as_json=as_json)


@command.command("load")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@_waiting(60.0)
@url_option
@key_option
@json_option
def load(
    file: Iterable[str], wait_s: float, url: str, api_key: str | None, *, as_json: bool
) -> None:
    """Send the events in FILE, one JSON object a line ("-": standard input)."""
    events = [_parsed(number, line) for number, line in enumerate(file, 1) if line.strip()]
    _deliver(events, url, api_key, wait_s, as_json=as_json)


def _parsed(number: int, line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"line {number} is no JSON: {error}") from None
    if not isinstance(event, dict) or event.get("type") not in _TYPES:
        raise click.BadParameter(f"line {number} has no type; allowed are {', '.join(_TYPES)}")
    if unknown := set(event) - _FIELDS:
        raise click.BadParameter(f"line {number} has unknown fields {sorted(unknown)}")
    if event.get("decision_id") is not None:
        _check_id(number, event["decision_id"])
    return event


def _check_id(number: int, text: object) -> None:
    """Refuse what is no id before anything is told: the lines above would be stored already."""
    try:
        UUID(str(text))
    except ValueError:
        message = f"line {number} has decision_id {text!r:.100}; wanted is the UUID of a decision"
        raise click.BadParameter(message) from None


def _deliver(
    events: list[dict[str, Any]], url: str, api_key: str | None, wait_s: float, *, as_json: bool
) -> None:
    with Client(url, api_key) as client:
        begun = time.time()
        ids = [_tell(client, event) for event in _watched(events)]
        left = client.flush(wait_s)
        refused = [
            {"event_id": item.id, "problem": json.loads(item.problem)}
            for item in client.refused()
            if item.at >= begun and item.id in ids
        ]
    result = {"events": ids, "stored": len(ids) - len(refused) - left, "waiting": left}
    show({**result, "refused": refused}, as_json=as_json)
    if refused:
        raise ServiceError(f"{len(refused)} of {len(ids)} events were refused; correct them")
    if left:
        raise ServiceError(f"{left} events wait on disk for the service; is {url} its address?")


def _tell(client: Client, event: dict[str, Any]) -> str:
    kind = event["type"]
    given = {name: event.get(name) for name in ("outcomes", "body", "action_taken", "at")}
    given |= {"episode": event.get("episode_id"), "event_id": event.get("event_id")}
    if kind in _METHODS:
        tell = getattr(client, _METHODS[kind])
    else:
        tell = client.log_interaction
        given["output"] = kind == "interaction.output"
    identifier: str = tell(event.get("decision_id"), **given)
    return identifier


def _watched(events: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    if len(events) < 2 or not sys.stderr.isatty():
        return events
    return track(events, description="telling", console=Console(stderr=True))
