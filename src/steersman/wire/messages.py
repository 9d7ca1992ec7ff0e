"""Requests and answers of the HTTP interface, as msgspec structs.

The service checks what these types cannot say (is the skill known, does the context fit its
declaration); the client builds and reads the same types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable  # noqa: TC003 (msgspec resolves this module's names)
from typing import Annotated, Any, Literal
from uuid import UUID  # noqa: TC003 (msgspec reads it)

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=128)]
"""A skill, a decision point, an outcome."""
ActionName = Annotated[str, Meta(min_length=1, max_length=1000)]
"""An action; a mixed one is the JSON of its parts."""
_PRINTABLE = r"^[\x21-\x7e]+$(?!\n)"
Key = Annotated[str, Meta(min_length=1, max_length=128, pattern=_PRINTABLE)]
"""An id or an idempotency key chosen by the application: printable ASCII without spaces. (Python's
`$` would let a line feed follow.)"""
Done = Annotated[str, Meta(min_length=1, max_length=210_000)]
"""What was done: an action, or the JSON list of a selection's picks: a hundred of a thousand
characters each, twice as long where all are quoted."""
Actions = Annotated[list[ActionName], Meta(max_length=10_000)]
Features = dict[ActionName, Annotated[list[float], Meta(max_length=16_384)]]
Links = dict[ActionName, Annotated[list[ActionName], Meta(max_length=10_000)]]
Outcomes = Annotated[dict[Name, float | bool], Meta(max_length=64)]
OLDEST_S = 946_684_800.0
"""2000-01-01, seconds since 1970: an older time is one in another unit, or a clock not set."""
Time = Annotated[float, Meta(extra_json_schema={"minimum": OLDEST_S})]
"""Seconds since 1970; the service refuses those too old, or a day ahead, in its own words."""
EventType = Literal["interaction.create", "interaction.output", "feedback.submit", "task_result"]

EVENT_TYPES: tuple[EventType, ...] = (
    "interaction.create",
    "interaction.output",
    "feedback.submit",
    "task_result",
)
MAX_BATCH = 1000


def in_plain_words(error: msgspec.ValidationError) -> str:
    """Return what is wrong with a message, without Python's names and the pattern of ids.

    Args:
        error: of reading one of the types here.

    Returns:
        One line, with the place at its end.

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
    """Ask for one decision.

    Attributes:
        skill: the application capability.
        decision: the decision point within it.
        context: what is known, by declared field name.
        eligible: the actions allowed for this request; absent: all that are declared; none: the
            declared fallback answers. Open candidate sets need one or more. Where actions are
            mixed, the JSON of some parts allows all configurations that have these values. Where
            actions are a sequence: the candidates that are there from the start, which is needed.
        features: one list of numbers per eligible action, where the point declares features; of a
            sequence also for every candidate that others lead to.
        links: of a sequence: by candidate, the candidates that picking it brings in.
        episode_id: what this decision belongs to with others (a conversation, a task).
        parent_id: the decision this one follows from.
        unit: what must stay on one arm of a rollout: user, session, episode.
        deadline_ms: how long the answer may take until it is given whether or not it is logged;
            absent: as declared.
        idempotency_key: the same key and body get the same answer, however often they are sent.
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
    """Ask for several decisions at once; each may fail on its own.

    Attributes:
        requests: 1 to 1,000 requests, checked one by one.
    """

    requests: Annotated[list[Any], Meta(min_length=1, max_length=MAX_BATCH)]


class Step(msgspec.Struct, frozen=True):
    """One step of a selection.

    Attributes:
        eligible: what could be drawn: the leading candidates, best first, and ``stop`` if it may.
        action: what was drawn.
        p: with which exact probability.
    """

    eligible: list[str]
    action: str
    p: float


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to one `DecideRequest`.

    Attributes:
        decision_id: names this decision for ever; give it with every event about it.
        action: what to do; a mixed one is the JSON of its parts, a selection the JSON list of what
            was picked.
        propensity: the exact probability with which it was drawn; of a selection, the product of
            its steps'.
        distribution: probability by action, of those eligible. Stored as float32, except for
            that of the action drawn, which is `propensity`. Where actions are mixed: of every
            value of every part, as ``part=value``. Empty where they are a sequence: see `steps`.
        snapshot: the policy state it was drawn from: this snapshot ...
        update_seq: ... and this many updates after it.
        stage: ``live`` unless a rollout is going on.
        arm: ``control`` or ``candidate``.
        logged: true: stored for good; ``unknown``: the deadline passed first, and it probably will
            be; false: it could not be stored, send `record` with your events.
        degraded: the declared fallback answered; never learned from, never evidence.
        record: signed; whoever holds it can have this decision stored later.
        parts: of a mixed action, by name.
        picked: of a selection: candidates in the order of picking.
        steps: of a selection: what was drawn, among what; empty where the fallback answered.
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
    """Return the name of a selection as an action: the JSON list of what was picked.

    Args:
        picked: names of candidates, in the order of picking.

    Returns:
        Without spaces.

    >>> selection_name(["p7", "p2"])
    '["p7","p2"]'
    """
    return json.dumps(list(picked), separators=(",", ":"), ensure_ascii=False)


class Event(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Something that happened after a decision. Of decision_id and episode_id, exactly one.

    Attributes:
        event_id: chosen by the application; the same id and body are stored once.
        decision_id: the decision it is about.
        episode_id: or the episode.
        type: one of the four; the paths named for a type know it already.
        schema_version: of this format.
        at: when it happened, seconds since 1970, from 2000 to a day from now; absent: when it was
            received.
        outcomes: named finite numbers, of which rewards are made.
        action_taken: what the application did, if not the action it was told; that decision is
            then neither learned from nor evidence.
        body: anything else worth keeping, up to 64 KiB.
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
    """Several events and records at once; each may fail on its own.

    Attributes:
        events: 0 to 1,000 events, each with its type, checked one by one.
        records: signed decisions that could not be stored when they were answered, and decisions
            that a client answered with its own default. They are stored before the events, which
            may be about them.
    """

    events: Annotated[list[Any], Meta(max_length=MAX_BATCH)] = []
    records: Annotated[list[Any], Meta(max_length=MAX_BATCH)] = []


class LocalDecision(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A decision that a client answered itself, with its ``default``, while no server could.

    Attributes:
        decision_id: a UUIDv7 made by the client.
        skill: the application capability.
        decision: the decision point within it.
        action: the default that was used.
        context: what was known.
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
    """What became of one event or record.

    Attributes:
        id: the event's id, or the decision's of a record.
        status: ``stored``; ``replayed``: it was there already; ``refused``: see `problem`.
        problem: as in an error answer.
    """

    id: str
    status: Literal["stored", "replayed", "refused"]
    problem: dict[str, Any] | None = None
