"""Messages of the HTTP API that the client sends and receives, as msgspec structs.

The service has its own copies in `steersman.wire`; a test compares them field by field.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable  # noqa: TC003 (msgspec resolves this module's names)
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

_PRINTABLE = r"^[\x21-\x7e]+$(?!\n)"
_FIXED = 7 << 76 | 0b10 << 62  # version and variant of a UUIDv7
_RANDOM = (1 << 80) - 1 - (0b1111 << 76) - (0b11 << 62)  # its 74 random bits
Name = Annotated[str, Meta(min_length=1, max_length=128)]
ActionName = Annotated[str, Meta(min_length=1, max_length=1000)]
Key = Annotated[str, Meta(min_length=1, max_length=128, pattern=_PRINTABLE)]
Done = Annotated[str, Meta(min_length=1, max_length=210_000)]
Actions = Annotated[list[ActionName], Meta(max_length=10_000)]
Features = dict[ActionName, Annotated[list[float], Meta(max_length=16_384)]]
Links = dict[ActionName, Annotated[list[ActionName], Meta(max_length=10_000)]]
Outcomes = Annotated[dict[Name, float | bool], Meta(max_length=64)]
OLDEST_S = 946_684_800.0
"""2000-01-01 in seconds since 1970; the service refuses older times."""
Time = Annotated[float, Meta(extra_json_schema={"minimum": OLDEST_S})]
EventType = Literal["interaction.create", "interaction.output", "feedback.submit", "task_result"]

write = msgspec.json.Encoder().encode
"""Return a message as compact JSON."""


class DecideRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Request for one decision; the fields are the arguments of `Client.decide`."""

    skill: Name
    decision: Name
    context: dict[str, Any] = {}
    eligible: Actions | None = None
    features: Features | None = None
    links: Links | None = None
    episode_id: Key | None = None
    parent_id: UUID | None = None
    unit: Key | None = None
    deadline_ms: Annotated[float, Meta(gt=0, le=60_000)] | None = None
    idempotency_key: Key | None = None


class Step(msgspec.Struct, frozen=True):
    """One step of a selection.

    Attributes:
        eligible: actions that could be drawn: the leading candidates, best first, and ``stop`` if
            allowed.
        action: action drawn.
        p: exact probability of the action.
    """

    eligible: list[str]
    action: str
    p: float


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """Decision of the service.

    Attributes:
        decision_id: permanent id of the decision.
        action: action to take. For a mixed action: the JSON of its parts. For a selection: the JSON
            list of the picks.
        propensity: exact probability of the action. For a selection: the product over its steps.
        distribution: probability of each eligible action. For mixed actions: the probability of
            every value of every part, as ``part=value``. Empty for a sequence, see `steps`.
        snapshot: version of the snapshot from which the policy started.
        update_seq: number of policy updates after this snapshot.
        stage: stage of the rollout; ``live`` without a rollout.
        arm: ``control`` or ``candidate``.
        logged: true: stored. ``unknown``: the deadline passed first, and the decision will probably
            be stored. false: not stored; the client sends `record` with the events.
        degraded: true if a fallback or default answered. The policy does not learn from such
            decisions, and evaluation ignores them.
        record: signed copy of the decision, which can be stored later.
        parts: values by part name, for a mixed action.
        picked: candidates in the order of the picks, for a selection.
        steps: steps of a selection. Empty if a fallback or default answered.
    """

    decision_id: UUID
    action: str
    propensity: float
    distribution: dict[str, float]
    snapshot: str
    update_seq: int
    stage: str
    arm: str
    logged: bool | Literal["unknown"]
    degraded: bool
    record: str | None = None
    parts: dict[str, Any] | None = None
    picked: list[str] | None = None
    steps: list[Step] | None = None


class Event(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Event about a decision or an episode; exactly one of their ids is required."""

    event_id: Key
    decision_id: UUID | None = None
    episode_id: Key | None = None
    type: EventType | None = None
    schema_version: Literal[1] = 1
    at: Time | None = None
    outcomes: Outcomes = {}
    action_taken: Done | None = None
    body: dict[str, Any] = {}


class LocalDecision(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Decision that the client answered with its default, for later delivery."""

    decision_id: UUID
    skill: Name
    decision: Name
    action: Done
    context: dict[str, Any] = {}
    episode_id: Key | None = None
    parent_id: UUID | None = None
    unit: Key | None = None


class EventResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Result for one event or record: ``stored``, ``replayed`` or ``refused``."""

    id: str
    status: Literal["stored", "replayed", "refused"]
    problem: dict[str, Any] | None = None


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Problem details of an error answer (RFC 9457).

    Attributes:
        code: stable error code, such as ``not_found``.
        status: HTTP status.
        title: meaning of the code.
        detail: what is wrong, the value, what is allowed, and what to do next.
        type: URI reference of the code.
        field: place in the request body, for example ``events[3].outcomes.success``.
        retry_after_s: seconds to wait before a retry.
    """

    code: str
    status: int
    title: str
    detail: str
    type: str = "about:blank"
    field: str = ""
    retry_after_s: float | None = None


def in_plain_words(error: msgspec.ValidationError) -> str:
    """Return a validation error without Python type names and regular expressions."""
    found = f"`str` matching regex {_PRINTABLE!r}"
    said = str(error).replace(found, "printable ASCII without spaces (send a hash of other texts)")
    return said.replace("`bool | float`", "a number, true or false")


def selection_name(picked: Iterable[str]) -> str:
    """Return the action name of a selection: the JSON list of its picks.

    >>> selection_name(["p7", "p2"])
    '["p7","p2"]'
    """
    return json.dumps(list(picked), separators=(",", ":"), ensure_ascii=False)


def new_id() -> UUID:
    """Return a new UUIDv7 (RFC 9562, section 5.7).

    >>> new_id().version
    7
    """
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10)) & _RANDOM
    return UUID(int=milliseconds << 80 | random | _FIXED)
