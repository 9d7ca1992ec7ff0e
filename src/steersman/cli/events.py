"""Events about decisions, sent to a running service: ``steersman events``."""

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
from steersman.cli.output import show
from steersman.client import Client, ServiceError
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
"""The byte order mark that some editors write in UTF-8 files."""


def _waiting(seconds: float) -> Callable[[F], F]:
    return click.option(
        "--wait-s",
        type=Number(min=0),
        default=seconds,
        show_default=True,
        help="Seconds to wait for delivery; undelivered events stay on disk.",
    )


@click.group()
def command() -> None:
    """Send events about decisions to the service."""


@command.command()
@click.argument("kind", type=click.Choice(_TYPES), metavar="TYPE")
@click.option(
    "--decision", type=click.UUID, help="Decision id of the event; give this or --episode."
)
@click.option("--episode", help="Episode id of the event; give this or --decision.")
@click.option(
    "--outcomes",
    type=JsonObject(),
    default="{}",
    help="Outcomes as a JSON object of named numbers.",
)
@click.option("--body", type=JsonObject(), default="{}", help="Further data as a JSON object.")
@click.option("--action-taken", help="Action that the application took instead of the decided one.")
@click.option(
    "--at", type=Number(), help="Time of the event, in seconds since 1970.  [default: now]"
)
@click.option(
    "--event-id",
    help="Event id of your choice. The service stores the same id, body and --at once. Without "
    "--at it refuses a repeat, because the time differs.  [default: a new id]",
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
    """Send one event.

    TYPE is interaction.create, interaction.output, feedback.submit or task_result. The event stays
    on disk until it is delivered. The next use of the same key sends undelivered events again.
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
    """Send the events in FILE, one JSON object per line.

    FILE "-" is the standard input. If a line is invalid, the command reports it and sends nothing.
    Events with `event_id` and `at` can be sent again; the service stores them once.
    """
    events = [_parsed(number, line) for number, line in enumerate(file, 1) if line.strip()]
    _deliver(events, url, api_key, wait_s, as_json=as_json)


def _parsed(number: int, line: bytes) -> dict[str, Any]:
    """Return an event; refuse an invalid line before any event is sent."""
    try:
        event = read(line.removeprefix(_MARK) if number == 1 else line)
    except Refused as error:
        raise click.BadParameter(f"line {number} is not valid JSON: {error}") from None
    if not isinstance(event, dict) or event.get("type") not in _TYPES:
        raise click.BadParameter(f"line {number} has no valid type; allowed: {', '.join(_TYPES)}")
    if unknown := set(event) - _FIELDS:
        message = f"line {number} has unknown fields {sorted(unknown)}; allowed: "
        raise click.BadParameter(message + ", ".join(sorted(_FIELDS)))
    known = {name: value for name, value in event.items() if value is not None}
    try:
        msgspec.convert({"event_id": "-", **known}, Event)
    except msgspec.ValidationError as error:
        message = (
            f"line {number}: {error}; `at` must be seconds since 1970, outcomes must be numbers"
        )
        raise click.BadParameter(message) from None
    if ("decision_id" in known) == ("episode_id" in known):
        message = f"line {number} must have either decision_id or episode_id"
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
    # Waiting events may come from earlier calls or other programs with this key: oldest first.
    stored = max(0, len(ids) - len(refused) - left)
    result = {"events": ids, "stored": stored, "waiting": left}
    show({**result, "refused": refused}, as_json=as_json)
    if refused:
        raise ServiceError(
            f"{len(refused)} of {len(ids)} events were refused; correct and send them again"
        )
    if left:
        raise ServiceError(
            f"{left} events are undelivered and stay on disk; check the service at {url}"
        )


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
    return track(events, description="sending", console=Console(stderr=True))
