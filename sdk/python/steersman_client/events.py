"""Events of the application, checked before they are queued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman_client.errors import InputError
from steersman_client.items import Item
from steersman_client.messages import OLDEST_S, Event, in_plain_words, new_id, write
from steersman_client.requests import decision_id, encode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from steersman_client.messages import Decision, EventType

MOST_BODY_BYTES = 64 << 10
_LATEST_S = 32_503_680_000.0  # 3000-01-01: the service knows today's date better than this machine


def event_of(
    kind: EventType,
    decision: Decision | UUID | str | None,
    episode: str | None,
    outcomes: Mapping[str, float] | None,
    action_taken: str | None,
    body: Mapping[str, Any] | None,
    at: float | datetime | None,
    event_id: str | None,
    *,
    now: float,
) -> Item:
    """Return an event in its sent form.

    Args:
        kind: one of the four event types.
        decision: decision of the event; give either it or the episode.
        episode: episode of the event.
        outcomes: named finite numbers.
        action_taken: action that the application took instead of the decided one.
        body: other content, up to 64 KiB as JSON.
        at: time of the event.
        event_id: event id of the application; None: a new one.
        now: seconds since 1970, used if ``at`` is None, because delivery may be much later.

    Raises:
        InputError: the service would refuse the event.
    """
    if (decision is None) == (episode is None):
        raise InputError("an event needs exactly one of decision and episode; give exactly one")
    seconds = _seconds(now if at is None else at)
    if at is not None and not OLDEST_S <= seconds <= _LATEST_S:
        raise InputError(
            f"invalid at {seconds}: expected seconds since 1970 (not milliseconds), from 2000 on"
        )
    event = Event(
        event_id=str(new_id()) if event_id is None else event_id,
        decision_id=None if decision is None else decision_id(decision),
        episode_id=episode,
        type=kind,
        at=seconds,
        outcomes=dict(outcomes or {}),
        action_taken=action_taken,
        body=dict(body or {}),
    )
    encoded = encode(event, outcomes=event.outcomes, body=event.body, at=event.at)
    try:
        msgspec.json.decode(encoded, type=Event)
    except msgspec.ValidationError as error:
        message = f"the service would refuse this event: {in_plain_words(error)}"
        raise InputError(message) from error
    if len(encoded) > MOST_BODY_BYTES and len(write(event.body)) > MOST_BODY_BYTES:
        raise InputError(
            f"body has {len(write(event.body))} bytes as JSON; at most {MOST_BODY_BYTES} are "
            "allowed; store large data elsewhere and send a reference"
        )
    return Item("event", event.event_id, encoded)


def _seconds(at: float | datetime) -> float:
    try:
        return at if isinstance(at, int | float) else at.timestamp()
    except (AttributeError, OverflowError, ValueError, OSError) as error:
        raise InputError(
            f"invalid at {at!r:.80}: expected seconds since 1970 or a datetime"
        ) from error
