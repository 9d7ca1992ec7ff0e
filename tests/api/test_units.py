"""What is kept about a unit, over HTTP: handed out and erased, by its own tenant alone."""

from __future__ import annotations

import json
import time
from uuid import uuid4

from steersman.db.tenants import create_tenant

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}
OF_MINE = {"unit": "user-17"}


async def decided(s, unit):
    answer = await s.ask("POST", "/v1/decide", {**DECIDE, "unit": unit})
    event = {"event_id": f"e-{unit}", "decision_id": answer.body["decision_id"]}
    done = await s.ask("POST", "/v1/task_result", {**event, "outcomes": {"success": 1}})
    assert (answer.status, done.status) == (200, 200), done.body
    return answer.body["decision_id"]


def tables_of(answer):
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line)["table"] for line in answer.body.splitlines()]


async def test_all_of_a_unit_is_handed_out_then_erased_and_nothing_of_others(serving) -> None:
    async with serving() as s:
        mine, other = await decided(s, "user-17"), await decided(s, "user-18")
        assert {"decision", "event"} <= set(tables_of(await export(s)))
        asked = {**OF_MINE, "reason": "request 4711"}
        done = await s.ask("POST", "/v1/units/erase", asked)
        assert (done.status, done.body["decisions"]) == (200, [mine])
        assert done.body["rows"]["event"] == 1
        assert tables_of(await export(s)) == []
        gone = await s.ask("GET", f"/v1/decisions/{mine}/explain")
        assert gone.body == {"decision_id": mine, "erased": True}
        assert "erased" not in (await s.ask("GET", f"/v1/decisions/{other}/explain")).body
        again = await s.ask("POST", "/v1/units/erase", asked)
        assert (again.status, again.body["decisions"]) == (200, [])


async def test_another_tenant_hands_out_and_erases_nothing_of_ours(serving, database) -> None:
    async with serving() as s:
        mine = await decided(s, "user-17")
        theirs = await create_tenant(database, f"o-{time.time_ns()}", actor="test")
        _, text = await s.new_key(database, theirs, role="operator")
        assert tables_of(await export(s, key=text)) == []
        by_unit = {**OF_MINE, "reason": "curious"}
        assert (await s.ask("POST", "/v1/units/erase", by_unit, key=text)).body["decisions"] == []
        by_id = {"decisions": [mine], "reason": "curious"}
        done = await s.ask("POST", "/v1/units/erase", by_id, key=text)
        assert (done.status, set(done.body["rows"].values())) == (200, {0})
        assert "erased" not in (await s.ask("GET", f"/v1/decisions/{mine}/explain")).body


async def test_what_is_not_allowed_is_refused_and_nothing_is_erased(serving) -> None:
    async with serving() as s:
        mine = await decided(s, "user-17")
        for body in (
            {},
            {"unit": "user-17"},
            {"unit": "user-17", "reason": ""},
            {"unit": "", "reason": "r"},
            {"unit": "user-17", "decisions": [mine], "reason": "r"},
            {"reason": "r"},
            {"decisions": [], "reason": "r"},
            {"decisions": [str(uuid4())], "reason": "r"},
            {"decisions": ["x"], "reason": "r"},
        ):
            answer = await s.ask("POST", "/v1/units/erase", body)
            assert (answer.status, answer.body["code"]) == (422, "invalid"), body
        assert (await s.ask("POST", "/v1/units/export", {"unit": 17})).status == 422
        assert "erased" not in (await s.ask("GET", f"/v1/decisions/{mine}/explain")).body


async def export(s, **asked):
    return await s.ask("POST", "/v1/units/export", OF_MINE, **asked)
