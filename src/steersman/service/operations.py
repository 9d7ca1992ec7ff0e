"""Every operation of the interface, for its description: what it takes, answers and refuses."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.service.schemas import EVENT_EXAMPLES, ref
from steersman.wire import EVENT_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

_DECIDE = {
    "skill": "assistant",
    "decision": "route",
    "context": {"intent": "refund", "length": 42},
    "idempotency_key": "request-17",
}

_EVALUATE = {
    "corpus": "manuals",
    "configurations": [{"variant": "bm25", "k": 5}, {"variant": "hybrid", "fusion_weight": 0.4}],
    "questions": [
        {"text": "why does the pump hum?", "gold": ["pumps.md"]},
        {"text": "how many amperes does the cable carry?", "gold": ["cables.txt"]},
    ],
}
_RETRACT = {
    "skill": "assistant",
    "decision": "route",
    "version": "0.1.2",
    "reason": "learned from a bot",
    "take_back": True,
}


class Operation(NamedTuple):
    """One method of one path.

    Attributes:
        method: in small letters.
        path: as the application declares it.
        summary: what it does, in a line.
        answer: schema of a good answer: a name of `components`, or a schema.
        scope: which the key must have; empty: no key is asked for.
        body: schema of the request's body; None: it has none.
        examples: of bodies, by name.
        codes: of problems, beside those that every operation of its kind has.
        status: of a good answer.
        media: type of a good answer.
        query: names and descriptions of Boolean parameters.
    """

    method: str
    path: str
    summary: str
    answer: Any
    scope: str = ""
    body: Any = None
    examples: Mapping[str, Any] = MappingProxyType({})
    codes: tuple[str, ...] = ()
    status: int = 200
    media: str = "application/json"
    query: tuple[tuple[str, str], ...] = ()


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_STORED = _object(
    event_id={"type": "string"}, status={"type": "string", "enum": ["stored", "replayed"]}
)
_DECISIONS = _object(decisions=_list({"anyOf": [ref("Decision"), _object(problem=ref("Problem"))]}))
_BATCH = {"events": [EVENT_EXAMPLES["feedback.submit"]], "records": []}
_ABOUT_EVENTS = {
    "interaction.create": "Report that an interaction began",
    "interaction.output": "Report what was put out, and what it cost",
    "feedback.submit": "Report what somebody thought of it",
    "task_result": "Report how the task ended",
}
_ROLLOUT = {
    "skill": "assistant",
    "decision": "route",
    "candidate": "0.1.1",
    "reason": "a week of feedback",
}
_ABOUT_ACTIONS = {
    "pause": "Let a rollout go no further; it is still watched",
    "resume": "Let a rollout go on, or a frozen decision point follow its line again",
    "promote": "Go on to the next stage, or from the last one let the candidate take over",
    "rollback": "Take the candidate back, freeze it, and open an incident",
    "freeze": "Pin what serves beside a rollout to one state",
}
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "post",
        "/v1/decide",
        "Decide once, or once for each of up to 1,000 requests",
        {"anyOf": [ref("Decision"), _DECISIONS]},
        "decide",
        {"anyOf": [ref("DecideRequest"), ref("BatchRequest")]},
        {"one": _DECIDE, "batch": {"requests": [_DECIDE]}},
        ("not_found", "idempotency_conflict"),
    ),
    *(
        Operation(
            "post",
            f"/v1/{kind}",
            _ABOUT_EVENTS[kind],
            _STORED,
            "events",
            ref("Event"),
            {"one": {k: v for k, v in EVENT_EXAMPLES[kind].items() if k != "type"}},
            ("not_found", "idempotency_conflict"),
        )
        for kind in EVENT_TYPES
    ),
    Operation(
        "post",
        "/v1/events",
        "Report events, and hand in records of decisions that could not be stored",
        _object(results=_list(ref("EventResult"))),
        "events",
        ref("EventBatch"),
        {"batch": _BATCH},
    ),
    Operation(
        "get",
        "/v1/decisions/{id}/explain",
        "Everything about one decision",
        "Explanation",
        "read",
        codes=("not_found",),
        query=(("recompute", "Build the state of that time, and compare its distribution."),),
    ),
    Operation(
        "post",
        "/v1/search",
        "The passages of a corpus that answer a query best, each with where it stands",
        "SearchAnswer",
        "decide",
        ref("SearchRequest"),
        {"one": {"corpus": "manuals", "query": "why does the pump hum?", "k": 5}},
        ("not_found", "not_allowed"),
    ),
    Operation(
        "post",
        "/v1/documents",
        "A document of a corpus, or a span of it, to check a citation",
        "ShownDocument",
        "decide",
        ref("DocumentRequest"),
        {"one": {"corpus": "manuals", "doc_id": "pumps.md", "start": 0, "end": 400}},
        ("not_found",),
    ),
    Operation(
        "post",
        "/tuner/evaluate",
        "What retrieval configurations are worth on a corpus, by questions whose answers are known",
        "Evaluation",
        "decide",
        ref("EvaluateRequest"),
        {"one": _EVALUATE},
        ("not_found", "not_allowed", "too_many_requests"),
    ),
    Operation(
        "get",
        "/rl-status",
        "How learning stands at every decision point",
        "Status",
        "read",
        query=(("states", "Tell the SHA-256 of each state that the answering process holds."),),
    ),
    Operation(
        "get",
        "/v1/snapshots",
        "The newest versions of every decision point's policy",
        _object(snapshots=_list(ref("ShownSnapshot"))),
        "read",
    ),
    Operation(
        "post",
        "/v1/snapshots/retract",
        "Take a version back for good, also one that serves",
        "RetractedSnapshot",
        "admin",
        ref("RetractSnapshot"),
        {"one": _RETRACT},
        ("not_allowed",),
    ),
    Operation(
        "get",
        "/v1/rollouts",
        "The latest rollouts, also those that ended",
        _object(rollouts=_list(ref("ShownRollout"))),
        "read",
    ),
    Operation(
        "post",
        "/v1/rollouts",
        "Start to roll out a published version",
        "ShownRollout",
        "admin",
        ref("NewRollout"),
        {"one": _ROLLOUT},
        ("not_allowed",),
        status=201,
    ),
    Operation(
        "post",
        "/v1/rollouts/plan",
        "How many units and days a rollout will take; nothing is started",
        "ShownForecast",
        "read",
        ref("NewForecast"),
        {"one": {"skill": "assistant", "decision": "route", "effect": 0.03}},
        ("not_found",),
    ),
    Operation(
        "get",
        "/v1/rollouts/{id}",
        "Where a rollout stands, why, and what may be done",
        "ShownRollout",
        "read",
        codes=("not_found",),
    ),
    Operation(
        "get",
        "/v1/rollouts/{id}/verdicts",
        "Every verdict of a rollout, with the inputs from which it can be computed again",
        _object(verdicts=_list(ref("ShownVerdict"))),
        "read",
        codes=("not_found",),
    ),
    *(
        Operation(
            "post",
            f"/v1/rollouts/{{id}}/{action}",
            about,
            "ShownRollout",
            "admin",
            ref("RolloutAct"),
            {"one": {"reason": "the latency alert of this morning"}},
            ("not_found", "not_allowed"),
        )
        for action, about in _ABOUT_ACTIONS.items()
    ),
    Operation(
        "get", "/v1/keys", "The tenant's keys", _object(keys=_list(ref("ShownKey"))), "admin"
    ),
    Operation(
        "post",
        "/v1/keys",
        "Make a key; its text is shown once",
        "ShownKey",
        "admin",
        ref("NewKey"),
        {"one": {"name": "checkout service", "role": "application"}},
        status=201,
    ),
    Operation(
        "post",
        "/v1/keys/{id}/rotate",
        "Make a key in place of another, which stays good for a while",
        "ShownKey",
        "admin",
        ref("Rotation"),
        {"one": {"grace_s": 3600}},
        ("not_found",),
        status=201,
    ),
    Operation(
        "delete",
        "/v1/keys/{id}",
        "Revoke a key; within a second nobody takes it",
        "ShownKey",
        "admin",
        codes=("not_found",),
    ),
    Operation(
        "post",
        "/v1/units/export",
        "Everything the hot store keeps about a unit, one JSON object a line",
        {"type": "string"},
        "admin",
        ref("UnitRequest"),
        {"one": {"unit": "user-17"}},
        media="application/x-ndjson",
    ),
    Operation(
        "post",
        "/v1/units/erase",
        "Erase decisions with their events, rewards and keys, for good",
        "ErasedRows",
        "admin",
        ref("EraseRequest"),
        {"one": {"unit": "user-17", "reason": "request 4711"}},
    ),
    Operation(
        "get", "/healthz", "Whether this process answers", _object(alive={"type": "boolean"})
    ),
    Operation(
        "get", "/readyz", "Whether to send requests here", _object(ready={"type": "boolean"})
    ),
    Operation(
        "get",
        "/metrics",
        "What was counted; from elsewhere with the metrics token",
        {"type": "string"},
        codes=("unauthorized",),
        media="text/plain",
    ),
    Operation("get", "/openapi.json", "This document", {"type": "object"}),
    Operation(
        "get",
        "/schemas/events/v1/{file}",
        "JSON Schema of an event type, such as task_result.json",
        {"type": "object"},
        codes=("not_found",),
        media="application/schema+json",
    ),
)
