"""The interface as its users see it: what is asked, what is answered, over a real port."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import pytest

from steersman.db.declarations import declare
from steersman.serving.load_guard import GuardianState
from tests.api.test_explain import JOINT

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


async def test_a_decision_is_answered_and_its_outcome_taken(serving) -> None:
    async with serving() as s:
        decided = await s.ask("POST", "/v1/decide", DECIDE)
        assert decided.status == 200
        assert decided.body["logged"] is True
        assert decided.body["propensity"] == decided.body["distribution"][decided.body["action"]]
        event = {
            "event_id": "e-1",
            "decision_id": decided.body["decision_id"],
            "outcomes": {"clicked": 1},
        }
        first = await s.ask("POST", "/v1/feedback.submit", event)
        again = await s.ask("POST", "/v1/feedback.submit", event)
        other = await s.ask("POST", "/v1/feedback.submit", {**event, "outcomes": {}})
        assert (first.status, first.body) == (200, {"event_id": "e-1", "status": "stored"})
        assert (again.status, again.body) == (200, {"event_id": "e-1", "status": "replayed"})
        assert (other.status, other.body["code"]) == (409, "idempotency_conflict")


async def test_a_batch_answers_each_request_on_its_own(serving) -> None:
    async with serving() as s:
        bodies = [DECIDE, {**DECIDE, "skill": "none"}, {**DECIDE, "context": {"x": []}}, DECIDE]
        bodies += [5, None, [DECIDE]]
        answer = await s.ask("POST", "/v1/decide", {"requests": bodies})
        assert answer.status == 200
        good, unknown, invalid, last, *odd = answer.body["decisions"]
        assert good["logged"] is last["logged"] is True
        assert good["decision_id"] != last["decision_id"]
        assert (unknown["problem"]["status"], invalid["problem"]["status"]) == (404, 422)
        assert [one["problem"]["status"] for one in odd] == [422] * 3


async def test_a_batch_of_events_tells_what_became_of_each(serving) -> None:
    async with serving() as s:
        decided = await s.ask("POST", "/v1/decide", DECIDE)
        about = {"decision_id": decided.body["decision_id"], "type": "task_result"}
        events = [
            {"event_id": "a", **about},
            {"event_id": "b", **about, "decision_id": str(uuid4())},
            {"event_id": "c", **about, "type": "nonsense"},
            None,
        ]
        records = ["forged.record", 5]
        answer = await s.ask("POST", "/v1/events", {"events": events, "records": records})
        assert answer.status == 200
        statuses = [result["status"] for result in answer.body["results"]]
        assert statuses == ["refused", "refused", "stored", "refused", "refused", "refused"]
        codes = [result.get("problem", {}).get("code") for result in answer.body["results"]]
        assert codes == ["invalid", "invalid", None, "not_found", "invalid", "invalid"]


async def test_where_nothing_is_eligible_the_fallback_answers_and_is_stored(
    serving, database, tenant
) -> None:
    await declare(database, tenant.id, JOINT, actor="test")
    async with serving() as s:
        nothing = {**DECIDE, "eligible": [], "idempotency_key": "k"}
        told = (await s.ask("POST", "/v1/decide", nothing)).body
        assert (told["action"], told["propensity"]) == ("shallow", 1.0)
        assert (told["degraded"], told["logged"]) == (True, True)
        assert told["distribution"] == {"shallow": 1.0}
        assert (await s.ask("POST", "/v1/decide", nothing)).body == told
        path = f"/v1/decisions/{told['decision_id']}/explain"
        explained = (await s.ask("GET", path)).body
        assert (explained["propensity_kind"], explained["weight"]) == ("fallback", 0.0)
        # "first" is no action: where candidates are open there must be one, whoever answers.
        open_one = {"skill": "search", "decision": "passage"}
        s.service.guard.tick = lambda: None
        for state in (GuardianState.NORMAL, GuardianState.LOCKDOWN):
            s.service.guard.state = state
            for more in ({}, {"eligible": []}):
                answer = await s.ask("POST", "/v1/decide", {**open_one, **more})
                assert (answer.status, answer.body["code"]) == (422, "invalid"), answer


BAD_BODIES = [
    (b"", {}, 400),
    (b"{", {}, 400),
    (b'{"skill": "a", "skill": "b"}', {}, 400),
    (b'{"skill": "\xff"}', {}, 400),
    (b'{"context": ' + b"[" * 5000 + b"]" * 5000 + b"}", {}, 400),
    (b'{"context": {"x": 1e999}}', {}, 400),
    (b'{"context": {"x": NaN}}', {}, 400),
    (b'{"skill": "\\u0000"}', {}, 400),
    (b"[1, 2]", {}, 422),
    (b"null", {}, 422),
    (b'{"requests": []}', {}, 422),
    (b'{"requests": 1}', {}, 422),
    (b'{"requests": [], "more": 1}', {}, 422),
    (b"{}", {}, 422),
    (b"{}", {"content_type": "text/plain"}, 415),
    (b"{}", {"content_type": "application/json; charset=latin-1"}, 415),
    (b"{}", {"content_encoding": "gzip"}, 415),
    (b" " * (1 << 20) + b"{}", {}, 413),
    (b'{"requests": [' + b" " * (8 << 20) + b"]}", {}, 413),
    (b'{"requests": ' + b" " * (20 << 20), {}, 413),
]


async def test_a_bad_body_is_a_problem_not_a_failure(serving) -> None:
    async with serving() as s:
        for path in ("/v1/decide", "/v1/events", "/v1/task_result"):
            for body, headers, status in BAD_BODIES:
                answer = await s.ask("POST", path, body, **headers)
                # What is no JSON is none anywhere; what events allow, and how much, is their own.
                same = path == "/v1/decide" or status in {400, 415}
                expected = {status} if same else {422, 413, 200}
                assert answer.status in expected, (path, body[:40], answer)
                if answer.status != 200:  # an empty batch of events is fine
                    assert answer.body["status"] == answer.status
                    assert answer.headers["content-type"] == "application/problem+json"
        assert (await s.ask("POST", "/v1/decide", DECIDE)).status == 200


async def test_an_id_that_cannot_be_one_is_told_in_plain_words(serving) -> None:
    async with serving() as s:
        for name in ("unit", "episode_id", "idempotency_key"):
            answer = await s.ask("POST", "/v1/decide", {**DECIDE, name: "Jörg Müller"})
            assert (answer.status, answer.body["field"]) == (422, name)
            assert "printable ASCII without spaces" in answer.body["detail"]


async def test_any_json_type_is_taken_however_it_is_written(serving) -> None:
    async with serving() as s:
        for kind in ("application/json", "Application/JSON", 'application/json;charset="UTF-8"'):
            assert (await s.ask("POST", "/v1/decide", DECIDE, content_type=kind)).status == 200


async def test_a_far_too_large_body_is_refused_before_it_is_sent(serving) -> None:
    async with serving() as s:
        head = (
            f"POST /v1/decide HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {s.key}\r\n"
            "content-type: application/json\r\n"
        )
        waiting = f"{head}content-length: 9000000\r\nexpect: 100-continue\r\n\r\n"
        assert (await s.raw(waiting.encode())).startswith(b"HTTP/1.1 413 ")
        endless = f"{head}content-length: 100000000000000\r\n\r\n"
        assert (await s.raw(endless.encode())).startswith(b"HTTP/1.1 413 ")


async def test_paths_and_methods(serving) -> None:
    async with serving() as s:
        assert (await s.ask("GET", "/nothing")).status == 404
        assert (await s.ask("POST", "/v1/decide/")).status == 404
        assert (await s.ask("GET", "/healthz%0A")).status == 404
        wrong = await s.ask("GET", "/v1/decide")
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
        wrong = await s.ask("DELETE", "/healthz")
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")
        head = await s.ask("HEAD", "/healthz")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(b'{"alive":true}'))


async def test_a_request_id_is_echoed_or_made(serving) -> None:
    async with serving() as s:
        assert (await s.ask("GET", "/healthz", x_request_id="mine-1")).headers[
            "x-request-id"
        ] == "mine-1"
        made = {(await s.ask("GET", "/healthz")).headers["x-request-id"] for _ in range(3)}
        assert len(made) == 3
        odd = await s.ask("GET", "/healthz", x_request_id="with space")
        assert odd.headers["x-request-id"] != "with space"


async def test_a_failure_of_ours_is_a_problem_with_the_request_id(serving, caplog) -> None:
    async with serving() as s:
        s.service.replicas.find = None  # type: ignore[assignment]
        answer = await s.ask("POST", "/v1/decide", DECIDE, x_request_id="seven")
        assert (answer.status, answer.body["code"]) == (500, "internal")
        assert "seven" in answer.body["detail"]
        assert "seven" in caplog.text


async def test_many_at_once_are_answered_once_each(serving) -> None:
    async with serving() as s:
        answers = await asyncio.gather(
            *(s.ask("POST", "/v1/decide", {**DECIDE, "unit": f"u{i}"}) for i in range(100))
        )
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body["decision_id"] for answer in answers}) == 100


async def test_a_key_asked_again_gets_the_same_answer(serving) -> None:
    async with serving() as s:
        body = {**DECIDE, "idempotency_key": "k-1"}
        first = await s.ask("POST", "/v1/decide", body)
        again = await s.ask("POST", "/v1/decide", body)
        other = await s.ask("POST", "/v1/decide", {**body, "unit": "u"})
        assert json.dumps(first.body) == json.dumps(again.body)
        assert other.status == 409


@pytest.mark.parametrize("said", ["True", "1", "yes", "", "true&{}=false", "tru"])
async def test_a_flag_that_is_neither_true_nor_false_is_told(serving, said) -> None:
    async with serving() as s:
        made = (await s.ask("POST", "/v1/decide", DECIDE)).body["decision_id"]
        explain = f"/v1/decisions/{made}/explain"
        for path, name in ((explain, "recompute"), ("/rl-status", "states")):
            answer = await s.ask("GET", f"{path}?{name}={said.format(name)}")
            assert (answer.status, answer.body.get("field")) == (422, name)
            assert "expected true or false" in answer.body["detail"]


async def test_a_flag_is_read_as_the_query_has_it(serving) -> None:
    async with serving() as s:
        made = (await s.ask("POST", "/v1/decide", DECIDE)).body["decision_id"]
        path = f"/v1/decisions/{made}/explain"
        for query in ("recompute=true", "recompute=tru%65", "more=1&recompute=true"):
            assert "recomputed" in (await s.ask("GET", f"{path}?{query}")).body
        for query in ("recompute=false", "", "more=recompute=true"):
            assert "recomputed" not in (await s.ask("GET", f"{path}?{query}")).body
