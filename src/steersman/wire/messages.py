"""Requests and answers of the HTTP API, as msgspec structs.

The service also checks what types cannot express, such as whether the skill exists and the context
fits its declaration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable  # noqa: TC003 (msgspec resolves this module's names)
from typing import Annotated, Any, Literal
from uuid import UUID  # noqa: TC003 (msgspec reads it)

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=128)]
"""Name of a skill, a decision point or an outcome."""
ActionName = Annotated[str, Meta(min_length=1, max_length=1000)]
"""Action name. For a mixed action: the JSON of its parts."""
_PRINTABLE = r"^[\x21-\x7e]+$(?!\n)"
Key = Annotated[str, Meta(min_length=1, max_length=128, pattern=_PRINTABLE)]
"""Id or idempotency key of the application: printable ASCII without spaces. (Python's `$` would
allow a trailing line feed.)"""
Done = Annotated[str, Meta(min_length=1, max_length=210_000)]
"""Action taken: an action name, or the JSON list of a selection's picks. The limit allows 100 picks
of 1,000 characters, with all characters escaped."""
Actions = Annotated[list[ActionName], Meta(max_length=10_000)]
Features = dict[ActionName, Annotated[list[float], Meta(max_length=16_384)]]
Links = dict[ActionName, Annotated[list[ActionName], Meta(max_length=10_000)]]
Outcomes = Annotated[dict[Name, float | bool], Meta(max_length=64)]
OLDEST_S = 946_684_800.0
"""2000-01-01 in seconds since 1970. An older time has a wrong unit or comes from an unset clock."""
Time = Annotated[float, Meta(extra_json_schema={"minimum": OLDEST_S})]
"""Seconds since 1970. The service refuses times before 2000 or more than a day ahead."""
EventType = Literal["interaction.create", "interaction.output", "feedback.submit", "task_result"]

EVENT_TYPES: tuple[EventType, ...] = (
    "interaction.create",
    "interaction.output",
    "feedback.submit",
    "task_result",
)
MAX_BATCH = 1000


def in_plain_words(error: msgspec.ValidationError) -> str:
    """Return a validation error without Python type names and regular expressions.

    Args:
        error: msgspec error for one of these types.

    Returns:
        One line that ends with the place of the error.

    >>> try:
    ...     msgspec.convert({"event_id": "my id"}, Event)
    ... except msgspec.ValidationError as error:
    ...     in_plain_words(error)
    'Expected printable ASCII without spaces (send a hash of other texts) - at `$.event_id`'
    """
    found = f"`str` matching regex {_PRINTABLE!r}"
    said = str(error).replace(found, "printable ASCII without spaces (send a hash of other texts)")
    return said.replace("`bool | float`", "a number, true or false")


class DecideRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Request for one decision.

    Attributes:
        skill: name of the skill.
        decision: name of the decision point within the skill.
        context: context values by declared field name.
        eligible: eligible actions of this request. Absent: all declared actions. Empty: the
            declared fallback answers. Required for open candidates and for sequences (the initial
            candidates). For mixed actions, the JSON of some parts selects all configurations with
            these values.
        features: one list of numbers per eligible action, if the decision point declares features.
            For a sequence, also for every linked candidate.
        links: for a sequence: the candidates that become available when a candidate is picked.
        episode_id: id of the episode, such as a conversation or a task.
        parent_id: id of the decision that led to this one.
        unit: unit that stays on one arm of a rollout: a user, session or episode.
        deadline_ms: time limit in milliseconds, after which the answer is sent even if it is not
            logged yet. Absent: the declared deadline.
        idempotency_key: repeated requests with the same key and body get the same answer.
    """

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


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Request for several decisions. Each may fail separately.

    Attributes:
        requests: 1 to 1,000 requests, validated separately.
    """

    requests: Annotated[list[Any], Meta(min_length=1, max_length=MAX_BATCH)]


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
    """Answer to one `DecideRequest`.

    Attributes:
        decision_id: permanent id of the decision. Send it with every event about the decision.
        action: action to take. For a mixed action: the JSON of its parts. For a selection: the JSON
            list of the picks.
        propensity: exact probability of the action. For a selection: the product over its steps.
        distribution: probability of each eligible action, stored as float32; the drawn action has
            exactly `propensity`. For mixed actions: the probability of every value of every part,
            as ``part=value``. Empty for a sequence, see `steps`.
        snapshot: version of the snapshot from which the policy started.
        update_seq: number of policy updates after this snapshot.
        stage: stage of the rollout; ``live`` without a rollout.
        arm: ``control`` or ``candidate``.
        logged: true: stored. ``unknown``: the deadline passed first, and the decision will probably
            be stored. false: not stored; send `record` with your events.
        degraded: true if the fallback answered. The policy does not learn from such decisions, and
            evaluation ignores them.
        record: signed copy of the decision, which can be stored later.
        parts: values by part name, for a mixed action.
        picked: candidates in the order of the picks, for a selection.
        steps: steps of a selection. Empty if the fallback answered.
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


def selection_name(picked: Iterable[str]) -> str:
    """Return the action name of a selection: the JSON list of its picks.

    Args:
        picked: names of candidates, in the order of the picks.

    Returns:
        JSON text without spaces.

    >>> selection_name(["p7", "p2"])
    '["p7","p2"]'
    """
    return json.dumps(list(picked), separators=(",", ":"), ensure_ascii=False)


class Event(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Event after a decision. Exactly one of decision_id and episode_id is required.

    Attributes:
        event_id: id from the application. Repeated events with the same id and body are stored
            once.
        decision_id: id of the decision.
        episode_id: id of the episode.
        type: type of the event. Optional on paths for one type.
        schema_version: version of this format.
        at: time of the event in seconds since 1970, from 2000 to one day ahead. Absent: the time
            of arrival.
        outcomes: finite numbers by outcome name, from which rewards are computed.
        action_taken: action that the application took instead of the returned action. The policy
            then does not learn from the decision, and evaluation ignores it.
        body: any other data, up to 64 KiB.
    """

    event_id: Key
    decision_id: UUID | None = None
    episode_id: Key | None = None
    type: EventType | None = None
    schema_version: Literal[1] = 1
    at: Time | None = None
    outcomes: Outcomes = {}
    action_taken: Done | None = None
    body: dict[str, Any] = {}


class EventBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several events and records. Each may fail separately.

    Attributes:
        events: 0 to 1,000 events, each with its type, validated separately.
        records: signed decisions that were not stored at decision time, and decisions that a client
            answered with its default. They are stored before the events.
    """

    events: Annotated[list[Any], Meta(max_length=MAX_BATCH)] = []
    records: Annotated[list[Any], Meta(max_length=MAX_BATCH)] = []


class LocalDecision(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Decision that a client answered with its ``default`` because no server was available.

    Attributes:
        decision_id: UUIDv7 created by the client.
        skill: name of the skill.
        decision: name of the decision point within the skill.
        action: default action that was used.
        context: context values by field name.
        episode_id: as in `DecideRequest`.
        parent_id: as in `DecideRequest`.
        unit: as in `DecideRequest`.
    """

    decision_id: UUID
    skill: Name
    decision: Name
    action: Done
    context: dict[str, Any] = {}
    episode_id: Key | None = None
    parent_id: UUID | None = None
    unit: Key | None = None


class EventResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Result for one event or record.

    Attributes:
        id: id of the event, or of the decision of a record.
        status: ``stored``, ``replayed`` (already stored) or ``refused`` (see `problem`).
        problem: problem details of a refused event or record.
    """

    id: str
    status: Literal["stored", "replayed", "refused"]
    problem: dict[str, Any] | None = None
