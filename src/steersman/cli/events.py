"""``steersman events``: what came of decisions, told to a running service."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.progress import track

from steersman.cli.arguments import JsonObject, Number
from steersman.cli.options import json_option, key_option, url_option
from steersman.cli.showing import show
from steersman.client import Client
from steersman.errors import ServiceError
from steersman.wire import Event, Refused, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

F = TypeVar("F", bound="Callable[..., Any] | click.Command")
_TYPES = ("interaction.create", "interaction.output", "feedback.submit", "task_result")
_METHODS = {"feedback.submit": "submit_feedback", "task_result": "task_result"}
_FIELDS = {"type", "decision_id", "episode_id", "outcomes", "action_taken", "body", "at"}
_FIELDS |= {"event_id", "schema_version"}
_MARK = b"\xef\xbb\xbf"
"""What some editors write in front of a text in UTF-8."""


def _waiting(seconds: float) -> Callable[[F], F]:
    return click.option(
        "--wait-s",
        type=Number(min=0),
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
@click.option(
    "--at", type=Number(), help="When it happened, in seconds since 1970.  [default: now]"
)
@click.option(
    "--event-id",
    help="Of your own; the same id, body and --at are stored once. Without --at a second one is "
    "refused: it happened at another time.",
)
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
    at: float | None,
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
    event: dict[str, Any] = {
        "type": kind,
        "decision_id": about,
        "episode_id": episode,
        "outcomes": outcomes,
    }
    event |= {"body": body, "action_taken": action_taken, "event_id": event_id, "at": at}
    _deliver([event], url, api_key, wait_s, as_json=as_json)


@command.command("load")
@click.argument("file", type=click.File("rb"))
@_waiting(60.0)
@url_option
@key_option
@json_option
def load(
    file: Iterable[bytes], wait_s: float, url: str, api_key: str | None, *, as_json: bool
) -> None:
    """Send the events in FILE, one JSON object a line ("-": standard input).

    A line that is wrong is told, and none is sent. What has `event_id` and `at` may be sent again,
    and is stored once.
    """
    events = [_parsed(number, line) for number, line in enumerate(file, 1) if line.strip()]
    _deliver(events, url, api_key, wait_s, as_json=as_json)


def _parsed(number: int, line: bytes) -> dict[str, Any]:
    """Return an event; refuse it before any is told, since the lines above would be stored."""
    try:
        event = read(line.removeprefix(_MARK) if number == 1 else line)
    except Refused as error:
        raise click.BadParameter(f"line {number} is no JSON: {error}") from None
    if not isinstance(event, dict) or event.get("type") not in _TYPES:
        raise click.BadParameter(f"line {number} has no type; allowed are {', '.join(_TYPES)}")
    if unknown := set(event) - _FIELDS:
        raise click.BadParameter(f"line {number} has unknown fields {sorted(unknown)}")
    known = {name: value for name, value in event.items() if value is not None}
    try:
        msgspec.convert({"event_id": "-", **known}, Event)
    except msgspec.ValidationError as error:
        message = f"line {number}: {error}; `at` is seconds since 1970, outcomes are numbers"
        raise click.BadParameter(message) from None
    if ("decision_id" in known) == ("episode_id" in known):
        message = f"line {number} is about a decision_id or an episode_id; give exactly one"
        raise click.BadParameter(message)
    return event


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
    # What waits may be of earlier calls, or of another program with this key: the oldest go first.
    stored = max(0, len(ids) - len(refused) - left)
    result = {"events": ids, "stored": stored, "waiting": left}
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
