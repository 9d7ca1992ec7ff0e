"""Operations of the HTTP API, for the OpenAPI document."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.api.schemas import EVENT_EXAMPLES, ref
from steersman.wire import EVENT_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

_DECIDE = {
    "skill": "assistant",
    "decision": "route",
    "context": {"intent": "refund", "length": 42},
    "idempotency_key": "request-17",
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
        method: HTTP method in lower case.
        path: path as the application declares it.
        summary: one-line summary.
        answer: schema of a successful answer: a name of `components`, or a schema.
        scope: scope that the key needs; empty: no key needed.
        body: schema of the request body; None: no body.
        examples: example bodies by name.
        codes: problem codes in addition to those of every operation of its kind.
        status: HTTP status of a successful answer.
        media: media type of a successful answer.
        query: names and descriptions of Boolean query parameters.
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
    "interaction.create": "Report the start of an interaction",
    "interaction.output": "Report the output and its cost",
    "feedback.submit": "Report user feedback",
    "task_result": "Report the result of a task",
}
_ROLLOUT = {
    "skill": "assistant",
    "decision": "route",
    "candidate": "0.1.1",
    "reason": "a week of feedback",
}
_ABOUT_ACTIONS = {
    "pause": "Pause a rollout: it stays on its stage and is still monitored",
    "resume": "Resume a rollout, or unpin a frozen decision point",
    "promote": "Promote the candidate to the next stage, or to the live policy from the last stage",
    "rollback": "Roll back the candidate, freeze it and open an incident",
    "freeze": "Freeze the live policy at its current state",
}
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "post",
        "/v1/decide",
        "Make one decision, or a batch of up to 1,000",
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
        "Report a batch of events and records of decisions that could not be stored",
        _object(results=_list(ref("EventResult"))),
        "events",
        ref("EventBatch"),
        {"batch": _BATCH},
    ),
    Operation(
        "get",
        "/v1/decisions/{id}/explain",
        "Explain one decision",
        "Explanation",
        "read",
        codes=("not_found",),
        query=(("recompute", "Recompute the distribution from the policy state of the decision."),),
    ),
    Operation(
        "post",
        "/v1/search",
        "Search a corpus for the passages that best answer a query",
        "SearchAnswer",
        "decide",
        ref("SearchRequest"),
        {"one": {"corpus": "manuals", "query": "why does the pump hum?", "k": 5}},
        ("not_found", "not_allowed"),
    ),
    Operation(
        "post",
        "/v1/documents",
        "Read a document of a corpus or a span of it, to check a citation",
        "ShownDocument",
        "decide",
        ref("DocumentRequest"),
        {"one": {"corpus": "manuals", "doc_id": "pumps.md", "start": 0, "end": 400}},
        ("not_found",),
    ),
    Operation(
        "get",
        "/rl-status",
        "Get the learning status of every decision point",
        "Status",
        "read",
        query=(("states", "Include the SHA-256 of each state that the answering process holds."),),
    ),
    Operation(
        "get",
        "/v1/snapshots",
        "List the newest policy versions of every decision point",
        _object(snapshots=_list(ref("ShownSnapshot"))),
        "read",
    ),
    Operation(
        "post",
        "/v1/snapshots/retract",
        "Retract a version permanently",
        "RetractedSnapshot",
        "admin",
        ref("RetractSnapshot"),
        {"one": _RETRACT},
        ("not_allowed",),
    ),
    Operation(
        "get",
        "/v1/rollouts",
        "List the latest rollouts, including ended ones",
        _object(rollouts=_list(ref("ShownRollout"))),
        "read",
    ),
    Operation(
        "post",
        "/v1/rollouts",
        "Start a rollout of a published version",
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
        "Forecast the units and days of a rollout without starting it",
        "ShownForecast",
        "read",
        ref("NewForecast"),
        {"one": {"skill": "assistant", "decision": "route", "effect": 0.03}},
        ("not_found",),
    ),
    Operation(
        "get",
        "/v1/rollouts/{id}",
        "Get the state of a rollout, its reason and the allowed actions",
        "ShownRollout",
        "read",
        codes=("not_found",),
    ),
    Operation(
        "get",
        "/v1/rollouts/{id}/verdicts",
        "List every verdict of a rollout with the inputs to recompute it",
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
            {"one": {"reason": "latency alert of this morning"}},
            ("not_found", "not_allowed"),
        )
        for action, about in _ABOUT_ACTIONS.items()
    ),
    Operation(
        "get",
        "/v1/keys",
        "List the API keys of the tenant",
        _object(keys=_list(ref("ShownKey"))),
        "admin",
    ),
    Operation(
        "post",
        "/v1/keys",
        "Create an API key; its text is shown once",
        "ShownKey",
        "admin",
        ref("NewKey"),
        {"one": {"name": "checkout service", "role": "application"}},
        status=201,
    ),
    Operation(
        "post",
        "/v1/keys/{id}/rotate",
        "Rotate an API key: create a new one; the old one stays valid for a grace period",
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
        "Revoke an API key; it takes effect within a second",
        "ShownKey",
        "admin",
        codes=("not_found",),
    ),
    Operation(
        "post",
        "/v1/units/export",
        "Export all data about a unit in the hot store, one JSON object per line",
        {"type": "string"},
        "admin",
        ref("UnitRequest"),
        {"one": {"unit": "user-17"}},
        media="application/x-ndjson",
    ),
    Operation(
        "post",
        "/v1/units/erase",
        "Erase decisions with their events, rewards and keys permanently",
        "ErasedRows",
        "admin",
        ref("EraseRequest"),
        {"one": {"unit": "user-17", "reason": "request 4711"}},
    ),
    Operation(
        "get", "/healthz", "Check whether this process is alive", _object(alive={"type": "boolean"})
    ),
    Operation(
        "get",
        "/readyz",
        "Check whether this process is ready for requests",
        _object(ready={"type": "boolean"}),
    ),
    Operation(
        "get",
        "/metrics",
        "Get the metrics; remote callers need the metrics token",
        {"type": "string"},
        codes=("unauthorized",),
        media="text/plain",
    ),
    Operation("get", "/openapi.json", "Get this document", {"type": "object"}),
    Operation(
        "get",
        "/schemas/events/v1/{file}",
        "Get the JSON Schema of an event type, for example task_result.json",
        {"type": "object"},
        codes=("not_found",),
        media="application/schema+json",
    ),
)
