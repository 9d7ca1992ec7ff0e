"""When no server answers: the default, at once, and nothing about it is unknown later."""

import json
import logging
import socketserver
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from steersman.client import Ask
from steersman_client.errors import InputError, UnavailableError

NOBODY = "http://127.0.0.1:9"
PARENT = "01a1ff23-5a81-7ec1-9682-123a4fba965d"


@contextmanager
def dripping(begun, drop):
    """Run a server that says ``begun``, and then for ten seconds a drop every 20 ms."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1 << 16)
            with suppress(OSError):
                self.request.sendall(begun)
                for _ in range(500):
                    self.request.sendall(drop)
                    time.sleep(0.02)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_default_is_a_decision_like_any_other(make):
    client = make(NOBODY)
    decision = client.decide("mail", "tone", {"a": 1}, default="plain")
    assert decision.action == "plain"
    assert decision.propensity == 1.0
    assert decision.distribution == {"plain": 1.0}
    assert (decision.logged, decision.degraded) == (False, True)
    assert (decision.snapshot, decision.stage, decision.arm) == ("", "live", "control")
    assert decision.decision_id.version == 7
    assert client.answered_locally == 1


def test_without_a_default_the_outage_is_raised(make):
    with pytest.raises(UnavailableError, match="check that the service runs"):
        make(NOBODY).decide("mail", "tone", {})


def test_a_circuit_that_is_open_answers_at_once(make, server):
    client = make(timeout_ms=5000)
    server.always = 503
    for _ in range(2):
        client.decide("mail", "tone", {}, default="plain")
    tried = len(server.of("/v1/decide"))
    began = time.monotonic()
    for _ in range(20):
        assert client.decide("mail", "tone", {}, default="plain").degraded
    assert time.monotonic() - began < 0.9
    assert len(server.of("/v1/decide")) == tried


@pytest.mark.parametrize("piece", ["head", "status", "more to come", "chunk", "body"])
def test_an_answer_that_drips_is_given_up_in_time(make, piece):
    """A socket's own timeout is for each read, and here something can always be read."""
    begun = {
        "head": b"HTTP/1.1 200 OK\r\nX-A: ",
        "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
    }
    drop = {"more to come": b"HTTP/1.1 100 Continue\r\n\r\n", "status": b"H", "chunk": b"0"}
    with dripping(begun.get(piece, b""), drop.get(piece, b" ")) as url:
        client = make(url)
        begin = time.monotonic()
        decision = client.decide("mail", "tone", {}, default="plain", timeout_ms=300)
        assert time.monotonic() - begin < 1.5
    assert (decision.action, decision.degraded) == ("plain", True)


def test_an_open_circuit_closes_when_the_server_is_back(make, server, eventually):
    client = make()
    server.always = 503
    for _ in range(2):
        client.decide("mail", "tone", {}, default="plain")
    server.always = None
    eventually(lambda: not client.decide("mail", "tone", {}, default="plain").degraded)


def test_the_local_decision_is_delivered_before_the_feedback_on_it(make, server):
    client = make(retries=0)
    server.always = 503
    decision = client.decide(
        "mail", "tone", {"a": 1}, default="plain", episode="e", unit="u", eligible=["plain"],
        parent=PARENT,
    )  # fmt: skip
    event = client.submit_feedback(decision, outcomes={"good": 1})
    server.always = None
    assert client.flush(10) == 0
    assert server.order == [str(decision.decision_id), event]
    assert server.stored[str(decision.decision_id)] == {
        "decision_id": str(decision.decision_id), "skill": "mail", "decision": "tone",
        "action": "plain", "context": {"a": 1}, "episode_id": "e", "parent_id": PARENT, "unit": "u",
    }  # fmt: skip


def test_a_signed_record_is_delivered_as_it_came(client, server):
    server.answer = {"logged": "unknown", "record": "signed"}
    client.decide("mail", "tone", {})
    client.flush(0.2)
    assert b'{"records":["signed"],"events":[]}' in {c["raw"] for c in server.of("/v1/events")}


def test_a_batch_falls_back_question_by_question(make):
    answers = make(NOBODY).decide_many([Ask("mail", "tone", default="plain"), Ask("mail", "tone")])
    assert answers[0].degraded
    assert isinstance(answers[1], UnavailableError)


def test_an_item_of_a_batch_that_cannot_be_served_now_gets_its_default(client, server, problem):
    body = json.dumps({"decisions": [{"problem": problem("unavailable")}]})
    server.script = [(200, {}, body.encode())]
    (answer,) = client.decide_many([Ask("mail", "tone", default="plain")])
    assert answer.degraded


def test_an_outage_is_told_once_and_not_once_a_request(make, caplog):
    client = make(NOBODY, retries=0)
    with caplog.at_level(logging.WARNING, "steersman.client"):
        for _ in range(5):
            client.decide("mail", "tone", {}, default="plain")
    told = [one for one in caplog.messages if "answered with their defaults" in one]
    assert len(told) == 1
    assert client.answered_locally == 5


def test_a_full_queue_does_not_take_the_answer_away(make, caplog):
    client = make(NOBODY, retries=0, queue_bytes=256 << 10)
    context = {"text": "x" * 60_000}
    answers = [client.decide("mail", "tone", context, default="plain") for _ in range(6)]
    assert all(answer.degraded for answer in answers)
    assert "could not be queued" in caplog.text


def test_a_default_of_a_selection_is_a_list_of_picks(make, server):
    client = make(retries=0)
    server.always = 503
    offered = {"eligible": ["a", "b"], "links": {"b": ["c"]}}
    decision = client.decide("evidence", "select", default=["b", "c"], **offered)
    assert (decision.action, decision.picked, decision.steps) == ('["b","c"]', ["b", "c"], [])
    assert decision.distribution == {}
    assert decision.degraded
    with pytest.raises(InputError, match="one of the eligible"):
        client.decide("evidence", "select", default=["b", "d"], **offered)


def test_a_default_of_a_mixed_action_has_its_parts_as_the_services_answers_have(make):
    client = make(NOBODY, retries=0)
    whole = '{"variant":"bm25","k":3,"rerank":false}'
    decision = client.decide("rag", "retrieval", default=whole)
    assert decision.parts == {"variant": "bm25", "k": 3, "rerank": False}
    assert client.decide("rag", "retrieval", default="{plain}").parts is None
    assert client.decide("rag", "retrieval", default="plain").parts is None
    # Some parts allow all that have them, so the default need not be named whole.
    some = ['{"variant":"dense"}', '{"variant":"bm25","rerank":false}']
    assert client.decide("rag", "retrieval", eligible=some, default=whole).action == whole
    with pytest.raises(InputError, match="one of the eligible"):
        client.decide("rag", "retrieval", eligible=['{"k":4}'], default=whole)


def test_a_default_is_allowed_where_nothing_is_eligible(make):
    client = make(NOBODY, retries=0)
    assert client.decide("mail", "tone", eligible=[], default="plain").action == "plain"
