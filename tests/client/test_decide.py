"""One call of decide: what is sent, what is tried again, and what is raised."""

import time
from uuid import UUID

import numpy as np
import pytest

from steersman.client import Ask
from steersman_client.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    ServiceError,
    UnauthorizedError,
    UnavailableError,
)


def test_what_is_asked_is_sent_and_what_is_answered_returned(client, server, key):
    parent = client.decide("mail", "tone", {"length": 3})
    decision = client.decide(
        "mail", "tone", {"length": 3}, eligible=["b", "c"], features={"b": [1.0], "c": [2.0]},
        episode="e1", unit="u1", parent=parent,
    )  # fmt: skip
    call = server.of("/v1/decide")[1]
    assert call["headers"]["authorization"] == f"Bearer {key}"
    assert call["headers"]["content-type"] == "application/json"
    body = call["body"]
    assert body.pop("idempotency_key")
    assert body == {
        "skill": "mail", "decision": "tone", "context": {"length": 3}, "eligible": ["b", "c"],
        "features": {"b": [1.0], "c": [2.0]}, "episode_id": "e1", "unit": "u1",
        "parent_id": str(parent.decision_id), "deadline_ms": 666.667,
    }  # fmt: skip
    assert (decision.action, decision.propensity, decision.snapshot) == ("b", 0.5, "s1")
    assert decision.logged is True
    assert not decision.degraded


def test_two_calls_have_two_idempotency_keys(client, server):
    for _ in range(2):
        client.decide("mail", "tone", {})
    first, second = (call["body"]["idempotency_key"] for call in server.calls)
    assert first != second


@pytest.mark.parametrize("fault", [408, 429, 500, 502, 503, 504, 520, "drop", "garbage"])
def test_what_may_pass_is_tried_again_with_the_very_same_body(client, server, fault):
    server.script = [fault, fault]
    assert client.decide("mail", "tone", {"a": 1}).action == "a"
    bodies = {call["raw"] for call in server.calls}
    assert len(server.calls) == 3
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ServiceError),
        (401, UnauthorizedError),
        (403, UnauthorizedError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, ServiceError),
        (422, ServiceError),
    ],
)
def test_what_will_not_pass_is_raised_at_once_even_with_a_default(client, server, status, error):
    server.script = [status]
    with pytest.raises(error, match="as the script says") as raised:
        client.decide("mail", "tone", {}, default="a")
    assert raised.value.problem.status == status
    assert len(server.calls) == 1


def test_an_answer_of_something_else_is_named_as_such(client, server):
    server.script = [(302, {"Location": "http://example.org/"}, b"elsewhere")]
    with pytest.raises(ServiceError, match=r"302 .* base_url"):
        client.decide("mail", "tone", {})


def test_a_server_that_hangs_leaves_time_for_another_try(make, server):
    client = make(timeout_ms=1000)
    server.script = ["hang"]
    assert client.decide("mail", "tone", {}).action == "a"
    assert len(server.calls) == 2


def test_the_timeout_holds_however_the_server_behaves(make, server):
    client = make(timeout_ms=300)
    server.always = "hang"
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="300 ms and 2 tries"):
        client.decide("mail", "tone", {})
    assert 0.29 < time.monotonic() - began < 1.5


def test_the_timeout_of_one_call_replaces_that_of_the_client(make, server):
    client = make(timeout_ms=60_000)
    server.always = "hang"
    with pytest.raises(UnavailableError):
        client.decide("mail", "tone", {}, timeout_ms=100)


def test_retry_after_is_waited_for(client, server):
    server.script = [(503, {"Retry-After": "1"})]
    client.decide("mail", "tone", {})
    first, second = server.calls
    assert second["at"] - first["at"] >= 1.0


def test_retry_after_beyond_the_timeout_ends_the_call_at_once(make, server):
    client = make(timeout_ms=5000)
    server.script = [(429, {"Retry-After": "3600"})]
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="429") as raised:
        client.decide("mail", "tone", {})
    assert time.monotonic() - began < 3
    assert raised.value.problem.code == "too_many_requests"
    assert len(server.calls) == 1


def test_no_retries_means_one_try(make, server):
    server.script = [503]
    with pytest.raises(UnavailableError, match="1 tries"):
        make(retries=0).decide("mail", "tone", {})
    assert len(server.calls) == 1


def test_a_batch_answers_each_question_or_says_why_not(client, server):
    answers = client.decide_many([Ask("mail", "tone"), Ask("unknown", "x"), Ask("mail", "tone")])
    assert [type(one).__name__ for one in answers] == ["Decision", "NotFoundError", "Decision"]
    keys = {one["idempotency_key"] for one in server.calls[0]["body"]["requests"]}
    assert len(keys) == 3


def test_explain_asks_for_the_decision_by_its_id(client, server):
    decision = client.decide("mail", "tone", {})
    path = f"/v1/decisions/{decision.decision_id}/explain"
    assert client.explain(decision) == {"path": path}
    assert client.explain(str(decision.decision_id)) == {"path": path}
    assert client.explain(decision, recompute=True) == {"path": path + "?recompute=true"}
    assert client.ping()
    assert isinstance(decision.decision_id, UUID)


def test_an_answer_that_is_nested_without_end_is_none(make, server):
    server.script = [(200, {}, b"[" * 5000)]
    with pytest.raises(UnavailableError, match="invalid body"):
        make(retries=0).explain("01a1ff23-5a81-7ec1-9682-123a4fba965d")


def test_ping_says_no_when_nobody_is_there(make):
    assert make("http://127.0.0.1:9").ping() is False


@pytest.mark.parametrize(
    "context",
    [{"a": float("nan")}, {"a": object()}, {"a": "\ud800"}, {"a": "\x00"}, {"a": 1 << 70}],
)
def test_what_json_cannot_say_is_refused_here(client, server, context):
    with pytest.raises(InputError, match=r"leave it out|cannot be sent"):
        client.decide("mail", "tone", context)
    assert not server.calls


def test_features_may_be_arrays(client, server):
    client.decide("mail", "tone", {}, eligible=["b"], features={"b": np.arange(2.0)})
    assert server.calls[0]["body"]["features"] == {"b": [0.0, 1.0]}


def test_arguments_that_make_no_sense_are_refused_here(client):
    with pytest.raises(InputError, match="default must be one of the eligible"):
        client.decide("mail", "tone", {}, eligible=["a"], default="b")
    with pytest.raises(InputError, match="lists of names, got 'ab'"):
        client.decide("mail", "tone", {}, eligible="ab")
    with pytest.raises(InputError, match="lists of names, got 'bc'"):
        client.decide("mail", "tone", {}, eligible=["a"], links={"a": "bc"})
    for wrong in ({"eligible": 5}, {"links": {"a": 5}}, {"eligible": ""}):
        with pytest.raises(InputError, match="lists of names, got"):
            client.decide("mail", "tone", {}, **wrong)
    for wrong in ({"features": [1.0]}, {"links": ["a"]}):
        with pytest.raises(InputError, match="must be a mapping from names to lists"):
            client.decide("mail", "tone", {}, **wrong)
    for wrong in (5, "12"):
        with pytest.raises(InputError, match=r"a list of numbers for each name, got .* for 'a'"):
            client.decide("mail", "tone", {}, features={"a": wrong})
    for default in (3, [3], b"a"):
        with pytest.raises(InputError, match="an action or a list of picks"):
            client.decide("mail", "tone", {}, default=default)
    with pytest.raises(InputError, match="context must be a mapping"):
        client.decide("mail", "tone", ["a"])
    with pytest.raises(InputError, match="1 to 1000"):
        client.decide_many([])
    with pytest.raises(InputError, match="timeout_ms"):
        client.decide("mail", "tone", {}, timeout_ms=0)
    with pytest.raises(InputError, match="a UUID"):
        client.explain("what?")


def test_a_closed_client_says_so(client):
    client.close()
    with pytest.raises(InputError, match="closed"):
        client.decide("mail", "tone", {})


def test_a_prefix_in_the_address_is_kept(make, server):
    make(server.url + "/prefix/").decide("mail", "tone", {})
    assert server.calls[0]["path"] == "/prefix/v1/decide"


def test_the_trace_goes_on_in_the_service(client, server):
    trace = pytest.importorskip("opentelemetry.trace")
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        client.decide("mail", "tone", {})
    client.decide("mail", "tone", {})
    first, second = server.calls
    assert first["headers"]["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert "traceparent" not in second["headers"]
