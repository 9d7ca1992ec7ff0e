"""Who may do what to a rollout over HTTP, once, and with a reason that can be shown to anybody."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from uuid import uuid4

from steersman.db.declarations import declare
from steersman.db.tenants import create_tenant
from steersman.wire import new_id
from tests.api.points import POINT
from tests.api.shipping import Shipping

NEW = {"skill": "search", "decision": "depth", "reason": "a test"}
ACTIONS = ("pause", "resume", "promote", "rollback", "freeze")


async def _published(s, database, tenant) -> dict[str, str]:
    shipping = Shipping(database, tenant.id, tenant.name, s.home)
    return {**NEW, "candidate": (await shipping.publish()).version}


async def test_the_same_promotion_twice_goes_one_step(serving, database, tenant) -> None:
    async with serving() as s:
        new = await _published(s, database, tenant)
        path = f"/v1/rollouts/{(await s.ask('POST', '/v1/rollouts', new)).body['id']}"
        go = {"reason": "a drill", "force": True, "step": 0}
        both = await asyncio.gather(*(s.ask("POST", f"{path}/promote", go) for _ in range(2)))
        assert sorted(one.status for one in both) == [200, 409]
        again = await s.ask("POST", f"{path}/promote", go)
        assert (again.status, again.body["code"]) == (409, "not_allowed")
        assert "on step 1 (canary), not on step 0" in again.body["detail"]
        assert (await s.ask("GET", path)).body["stage"] == "canary"
        wrong = await s.ask("POST", f"{path}/promote", {**go, "step": -1})
        assert (wrong.status, wrong.body["field"]) == (422, "step")


async def test_two_starts_at_once_make_one_rollout(serving, database, tenant) -> None:
    async with serving() as s:
        new = await _published(s, database, tenant)
        both = await asyncio.gather(*(s.ask("POST", "/v1/rollouts", new) for _ in range(3)))
        assert sorted(one.status for one in both) == [201, 409, 409]
        assert len((await s.ask("GET", "/v1/rollouts")).body["rollouts"]) == 1


async def test_a_refusal_does_not_tell_where_files_lie(serving, database, tenant) -> None:
    async with serving() as s:
        new = await _published(s, database, tenant)
        (s.home / "trust" / tenant.name / "root.json").unlink()
        answer = await s.ask("POST", "/v1/rollouts", new)
        assert (answer.status, answer.body["code"]) == (409, "not_allowed")
        assert "missing trusted root" in answer.body["detail"]
        assert str(s.home) not in answer.body["detail"]


async def test_a_reason_is_one_line_that_steers_no_terminal(
    serving, database, tenant, subtests
) -> None:
    texts = ("  ", "\u001b[2Jgone", "one\nrow: 2", "\u202etxt.exe", "a\u2028b", "\u009b31m")
    async with serving() as s:
        new = await _published(s, database, tenant)
        for field, text in product(("reason", "again", "force"), texts):
            with subtests.test(f"{field}: {text!r}"):
                answer = await s.ask("POST", "/v1/rollouts", {**new, field: text})
                assert (answer.status, answer.body["code"]) == (422, "invalid"), answer.body
                assert field in answer.body["detail"]
                assert answer.body["detail"].isprintable()
        assert (await s.ask("GET", "/v1/rollouts")).body == {"rollouts": []}


async def test_other_keys_and_other_tenants_can_do_nothing(serving, database, tenant) -> None:
    async with serving() as s:
        new = await _published(s, database, tenant)
        made = (await s.ask("POST", "/v1/rollouts", new)).body
        path = f"/v1/rollouts/{made['id']}"
        _, decides = await s.new_key(database, tenant, role="application")
        _, acts = await s.new_key(database, tenant, scopes=["admin"])
        for method, asked, body, keys in (
            ("GET", "/v1/rollouts", None, [decides, acts]),
            ("GET", path, None, [decides, acts]),
            ("GET", f"{path}/verdicts", None, [decides, acts]),
            ("GET", "/v1/snapshots", None, [decides, acts]),
            ("POST", "/v1/rollouts", new, [decides]),
            *(("POST", f"{path}/{it}", {"reason": "r"}, [decides]) for it in ACTIONS),
        ):
            for key in keys:
                answer = await s.ask(method, asked, body, key=key)
                assert (answer.status, answer.body["code"]) == (403, "forbidden"), asked
            assert (await s.ask(method, asked, body, key=None)).status == 401
        stranger = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
        await declare(database, stranger.id, POINT, actor="test")
        _, key = await s.new_key(database, stranger)
        answers = []
        for candidate in (new["candidate"], "0.7.7"):  # of another tenant; of nobody
            answer = await s.ask("POST", "/v1/rollouts", {**new, "candidate": candidate}, key=key)
            answers.append((answer.status, json.dumps(answer.body).replace(candidate, "V")))
        assert answers[0] == answers[1]
        for bad in ({"reason": "r"}, {"reason": " "}, {}, b"{", b"[" * 70_000):
            for action in ACTIONS:
                tried = [
                    await s.ask("POST", f"/v1/rollouts/{it}/{action}", bad, key=key)
                    for it in (made["id"], str(new_id()))
                ]
                assert tried[0].status in {400, 404, 413, 422}
                assert (tried[0].status, tried[0].body) == (tried[1].status, tried[1].body)
        assert (await s.ask("GET", "/v1/rollouts", key=key)).body == {"rollouts": []}
        shown = (await s.ask("GET", "/v1/snapshots", key=key)).body["snapshots"]
        assert [one["version"] for one in shown] == ["0.1.0"]
        assert (await s.ask("GET", path)).body["status"] == "running"
