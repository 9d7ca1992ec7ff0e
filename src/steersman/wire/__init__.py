"""Messages of the HTTP API: requests, answers, events, problems and ids.

The client has copies (`steersman_client.messages`). Messages are msgspec structs. `read` decodes
untrusted JSON strictly, `write` encodes. Ids are UUIDv7 (`new_id`): they sort by time and need no
database sequence.
"""

from __future__ import annotations

from steersman.wire.ids import id_time, new_id
from steersman.wire.messages import (
    EVENT_TYPES,
    OLDEST_S,
    BatchRequest,
    DecideRequest,
    Decision,
    Event,
    EventBatch,
    EventResult,
    EventType,
    LocalDecision,
    Step,
    in_plain_words,
    selection_name,
)
from steersman.wire.problems import CODES, Problem, Refused
from steersman.wire.strict_json import canonical_hash, read, write

__all__ = [
    "CODES",
    "EVENT_TYPES",
    "OLDEST_S",
    "BatchRequest",
    "DecideRequest",
    "Decision",
    "Event",
    "EventBatch",
    "EventResult",
    "EventType",
    "LocalDecision",
    "Problem",
    "Refused",
    "Step",
    "canonical_hash",
    "id_time",
    "in_plain_words",
    "new_id",
    "read",
    "selection_name",
    "write",
]
