"""What becomes of events after a method returned: delivered, set aside, or tried again."""

import json
import logging
from datetime import UTC, date, datetime

import pytest

from steersman.client import Client
from steersman_client.delivery import MOST_BYTES, batch_request, settle
from steersman_client.errors import InputError, QueueFullError
from steersman_client.exchange import Answer, Failure
from steersman_client.items import Item, Row
from steersman_client.lease import Lease
from steersman_client.sync_http import SyncTransport

EVENT = {"outcomes": {"good": 1.0}}


def test_each_method_sends_its_type(client, server):
    decision = client.decide("mail", "tone", {})
    ids = [
        client.log_interaction(decision, body={"text": "hello"}, at=1.7e9),
        client.log_interaction(decision, output=True, action_taken="other"),
        client.submit_feedback(episode="e1", outcomes={"thumbs_up": 1}),
        client.task_result(str(decision.decision_id), outcomes={"done": True}, event_id="mine"),
    ]
    assert client.flush(10) == 0
    assert server.order == ids
    stored = [server.stored[one] for one in ids]
    assert [one["type"] for one in stored] == [
        "interaction.create", "interaction.output", "feedback.submit", "task_result",
    ]  # fmt: skip
    assert stored[0]["at"] == 1.7e9
    assert stored[0]["body"] == {"text": "hello"}
    assert stored[1]["action_taken"] == "other"
    assert stored[2]["episode_id"] == "e1"
    assert ids[3] == "mine"
    assert stored[3]["decision_id"] == str(decision.decision_id)
    assert all(one["at"] > 0 for one in stored)


def test_an_id_that_cannot_be_one_is_told_in_plain_words(client):
    with pytest.raises(InputError, match=r"printable ASCII without spaces .* - at `\$.episode_id`"):
        client.submit_feedback(episode="Jörg Müller")
    with pytest.raises(
        InputError, match=r"Expected a number, true or false, got `str` - at `\$\.out"
    ):
        client.submit_feedback(episode="e", outcomes={"success": "yes"})


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"decision": "no uuid"},
        {"episode": "has space"},
        {"episode": "e", "outcomes": {"a": float("inf")}},
        {"episode": "e", "outcomes": {"a": "text"}},
        {"episode": "e", "outcomes": {"": 1}},
        {"episode": "e", "event_id": ""},
        {"episode": "e", "at": float("nan")},
        {"episode": "e", "at": 1.7e12},  # milliseconds
        {"episode": "e", "at": 0},
        {"episode": "e", "at": datetime.max.replace(tzinfo=UTC)},
        {"episode": "e", "at": date(2026, 11, 22)},
        {"episode": "e", "body": {"a": "x" * 70_000}},
        {"episode": "e", "body": {"a": object()}},
    ],
)
def test_what_the_service_would_refuse_is_refused_at_once(client, wrong):
    with pytest.raises(InputError):
        client.submit_feedback(**wrong)
    assert client.backlog().events == 0


def test_events_wait_for_the_server_and_arrive_once(make, scripted, tmp_path):
    away = scripted()
    port = away.port
    away.close()
    client = make(f"http://127.0.0.1:{port}")
    ids = [client.submit_feedback(episode="e", **EVENT) for _ in range(700)]
    assert client.flush(0.1) == 700
    back = scripted(port)
    try:
        assert client.flush(10) == 0
        assert back.order == ids
        assert all(len(call["body"]["events"]) <= 500 for call in back.calls)
    finally:
        back.close()


def test_an_error_nobody_thought_of_ends_no_delivery(client, server, monkeypatch, caplog):
    send = SyncTransport.send
    failures = iter([LookupError("unknown encoding"), RuntimeError("a bug")])

    def failing(self, step):
        if error := next(failures, None):
            raise error
        return send(self, step)

    monkeypatch.setattr(SyncTransport, "send", failing)
    name = client.submit_feedback(episode="e", **EVENT)
    assert client.flush(20) == 0
    assert server.order == [name]
    assert "unexpected error while sending: LookupError('unknown encoding')" in caplog.text


@pytest.mark.parametrize("fault", [401, 403, 404, 429, 500, 503, "drop", "garbage", 302])
def test_nothing_is_lost_by_a_server_that_does_not_take_it(client, server, fault):
    server.always = fault
    ids = [client.submit_feedback(episode="e", **EVENT) for _ in range(3)]
    assert client.flush(0.3) == 3
    server.always = None
    assert client.flush(10) == 0
    assert sorted(server.order) == sorted(ids)
    assert client.backlog().refused == 0


def test_what_was_left_is_delivered_by_the_next_client(make, server):
    server.always = 503
    first = make()
    name = first.submit_feedback(episode="e", **EVENT)
    first.close()
    server.always = None
    assert make().flush(10) == 0
    assert server.order == [name]


def test_what_was_left_is_delivered_though_the_next_client_is_asked_for_nothing(
    make, server, eventually
):
    server.always = 503
    first = make()
    name = first.submit_feedback(episode="e", **EVENT)
    first.close()
    server.always = None
    make()
    eventually(lambda: server.order == [name])


def test_the_server_says_when_events_may_come_again(server, key, tmp_path, eventually):
    server.always = (503, {"Retry-After": "1"})
    with Client(server.url, key, queue_dir=tmp_path) as client:
        name = client.submit_feedback(episode="e", outcomes={"good": 1.0})
        eventually(lambda: server.calls)
        server.always = None
        eventually(lambda: server.order == [name])
    first, second, *_ = server.calls
    assert second["at"] - first["at"] >= 1.0


def test_a_refused_event_is_set_aside_and_told(client, server, problem, caplog):
    server.refuse["bad"] = problem("not_found")
    with caplog.at_level(logging.WARNING, "steersman.client"):
        client.submit_feedback(episode="e", event_id="bad", **EVENT)
        good = client.submit_feedback(episode="e", **EVENT)
        assert client.flush(10) == 0
    (refused,) = client.refused()
    assert (refused.kind, refused.id) == ("event", "bad")
    assert json.loads(refused.problem)["code"] == "not_found"
    assert json.loads(refused.body)["outcomes"] == {"good": 1.0}
    assert server.order == [good]
    assert client.backlog().refused == 1
    assert "the service refused event bad" in caplog.text


def test_an_event_that_cannot_be_stored_now_does_not_hold_up_the_others(
    client, server, problem, eventually
):
    server.refuse["slow"] = problem("unavailable")
    client.submit_feedback(episode="e", event_id="slow", **EVENT)
    good = client.submit_feedback(episode="e", **EVENT)
    eventually(lambda: server.order == [good])
    assert client.flush(0.1) == 1
    del server.refuse["slow"]
    assert client.flush(10) == 0
    assert server.order == [good, "slow"]


def test_an_event_whose_record_is_not_stored_yet_waits_for_it(make, server, problem):
    client = make(retries=0)
    server.always = 503
    decision = client.decide("mail", "tone", {}, default="plain")
    event = client.submit_feedback(decision, **EVENT)
    name = str(decision.decision_id)
    server.refuse[name] = problem("unavailable")
    server.refuse[event] = lambda: None if name in server.stored else problem("not_found")
    server.always = None
    assert client.flush(0.3) == 2
    del server.refuse[name]
    assert client.flush(10) == 0
    assert server.order == [name, event]
    assert client.refused() == []


def test_a_full_queue_is_told_and_loses_nothing(make, server):
    client = make(queue_bytes=256 << 10)
    server.always = 503
    kept = []

    def fill():
        while True:
            kept.append(client.submit_feedback(episode="e", body={"text": "x" * 50_000}))

    with pytest.raises(QueueFullError):
        fill()
    server.always = None
    assert client.flush(10) == 0
    assert server.order == kept
    assert len(kept) >= 3


def test_a_holder_of_the_lease_that_does_nothing_is_passed_by(make, server, monkeypatch):
    monkeypatch.setattr("steersman_client.sender.PATIENCE_S", 0.1)
    client = make()
    stopped = Lease(client.queue_path.with_suffix(".sender"))
    assert stopped.take()
    client.submit_feedback(episode="e", **EVENT)
    client.submit_feedback(episode="e", **EVENT)
    assert client.flush(10) == 0
    stopped.release()


# The rules by themselves.


def rows(*names, kind="event"):
    return [Row(index, Item(kind, name, b"{}")) for index, name in enumerate(names)]


def answer(status, value=None, retry_after=""):
    return Answer(status, retry_after, json.dumps(value).encode())


def stored(*names):
    return answer(200, {"results": [{"id": name, "status": "stored"} for name in names]})


def test_a_batch_keeps_records_and_events_apart():
    batch = [*rows("r", kind="record"), *rows("a", "b")]
    assert batch_request(batch).body == b'{"records":[{}],"events":[{},{}]}'
    assert MOST_BYTES < 1 << 20


@pytest.mark.parametrize(
    "heard", [stored("a"), stored("b", "a"), stored("a", "b", "c"), answer(200, []), answer(200)]
)
def test_results_that_do_not_fit_the_batch_settle_nothing(heard):
    outcome = settle(rows("a", "b"), heard, 0.0)
    assert outcome.failed
    assert outcome.settlement.done == outcome.settlement.refused == ()


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_batch_refused_as_a_whole_is_halved_until_the_culprit_is_alone(status, problem):
    culprit = answer(status, problem("invalid"))
    outcome = settle(rows("a", "b", "c", "d"), culprit, 0.0)
    assert (outcome.rows_next, outcome.failed) == (2, False)
    alone = rows("a")
    assert settle(alone, culprit, 0.0).settlement.refused[0][0] == alone[0]


def test_after_trouble_batches_start_small_and_grow():
    many = rows(*(f"e{number}" for number in range(300)))
    assert settle(many, answer(503), 0.0).rows_next == 64
    assert settle(many[:64], stored(*(row.item.id for row in many[:64])), 0.0).rows_next == 128
    assert settle(many, stored(*(row.item.id for row in many)), 0.0).rows_next == 500


def test_nobody_but_the_service_has_a_say_over_a_row():
    outcome = settle(rows("a"), answer(400, "proxy error"), 0.0)
    assert outcome.failed
    assert outcome.settlement.refused == ()


def test_a_row_that_crashes_the_server_is_put_at_the_end():
    outcome = settle(rows("a", "b"), answer(500), 0.0)
    assert (outcome.rows_next, outcome.settlement.later) == (1, ())
    alone = rows("a")
    assert settle(alone, answer(500), 0.0).settlement.later == tuple(alone)


def test_a_failure_leaves_everything_where_it_is_and_says_why():
    outcome = settle(rows("a"), Failure("refused"), 0.0)
    assert (outcome.failed, outcome.reason) == (True, "refused")
    assert settle(rows("a"), answer(503, retry_after="9"), 0.0).retry_after_s == 9.0
