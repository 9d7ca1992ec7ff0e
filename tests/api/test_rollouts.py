"""Rollouts over HTTP: started, moved, read by who may; legal actions of one's own tenant."""

from __future__ import annotations

from uuid import uuid4

from steersman.db.keys import create_key
from steersman.db.secret import load_secret
from steersman.db.tenants import create_tenant
from tests.api.shipping import Shipping

NEW = {"skill": "search", "decision": "depth", "reason": "a test"}


def _shipping(s, database, tenant) -> Shipping:
    return Shipping(database, tenant.id, tenant.name, s.home)


async def test_a_rollout_is_started_moved_and_taken_back(serving, database, tenant) -> None:
    async with serving() as s:
        version = (await _shipping(s, database, tenant).publish()).version
        made = await s.ask("POST", "/v1/rollouts", {**NEW, "candidate": version})
        assert made.status == 201, made.body
        assert (made.body["status"], made.body["stage"]) == ("running", "shadow")
        assert made.body["control"] == "0.1.0"
        path = f"/v1/rollouts/{made.body['id']}"
        again = await s.ask("POST", "/v1/rollouts", {**NEW, "candidate": version})
        assert (again.status, again.body["code"]) == (409, "not_allowed")
        assert made.body["id"] in again.body["detail"]

        paused = await s.ask("POST", f"{path}/pause", {"reason": "lunch"})
        assert (paused.status, paused.body["status"]) == (200, "paused")
        refused = await s.ask("POST", f"{path}/promote", {"reason": "hurry"})
        assert (refused.status, refused.body["code"]) == (409, "not_allowed")
        assert "resume" in refused.body["detail"]
        assert (await s.ask("POST", f"{path}/resume", {"reason": "back"})).status == 200
        shown = (await s.ask("GET", path)).body
        assert shown["legal_actions"] == ["pause", "promote", "rollback", "freeze"]
        assert shown["plan"]["stages"][0]["name"] == "shadow"
        no = await s.ask("POST", f"{path}/promote", {"reason": "I feel lucky"})
        assert "not enough evidence" in no.body["detail"]
        forced = await s.ask("POST", f"{path}/promote", {"reason": "a drill", "force": True})
        assert (forced.body["stage"], forced.body["share"]) == ("canary", 0.05)
        back = await s.ask("POST", f"{path}/rollback", {"reason": "enough"})
        assert back.body["status"] == "aborted"  # it served nobody
        assert (await s.ask("GET", f"{path}/verdicts")).body == {"verdicts": []}
        listed = (await s.ask("GET", "/v1/rollouts")).body["rollouts"]
        assert [row["id"] for row in listed] == [made.body["id"]]


async def test_what_is_not_allowed_is_refused(serving, database, tenant) -> None:
    async with serving() as s:
        version = (await _shipping(s, database, tenant).publish()).version
        for change in (
            {"candidate": "0.9.9"},
            {"candidate": "0.1.0"},
            {"candidate": version, "decision": "width"},
        ):
            answer = await s.ask("POST", "/v1/rollouts", {**NEW, **change})
            assert (answer.status, answer.body["code"]) == (409, "not_allowed"), answer.body
        for body in (
            {},
            {**NEW, "candidate": version, "reason": ""},
            {**NEW, "candidate": version, "speed": 9},
            {**NEW, "candidate": version, "overrides": {"alpha": 2}},
            {**NEW, "candidate": version, "overrides": {"colour": "red"}},
        ):
            answer = await s.ask("POST", "/v1/rollouts", body)
            assert (answer.status, answer.body["code"]) == (422, "invalid"), answer.body
        for name in (str(uuid4()), "x", "%2e%2e"):
            assert (await s.ask("GET", f"/v1/rollouts/{name}")).status == 404
            assert (await s.ask("GET", f"/v1/rollouts/{name}/verdicts")).status == 404
            asked = await s.ask("POST", f"/v1/rollouts/{name}/pause", {"reason": "r"})
            assert asked.status == 404


async def test_scopes_and_tenants_are_kept(serving, database, tenant) -> None:
    async with serving() as s:
        version = (await _shipping(s, database, tenant).publish()).version
        made = (await s.ask("POST", "/v1/rollouts", {**NEW, "candidate": version})).body
        secret = load_secret(s.home)

        async def key_of(owner, role) -> str:
            made = await create_key(
                database, owner.id, secret=secret, name="k", role=role, actor="test"
            )
            return made[1]

        path = f"/v1/rollouts/{made['id']}"
        observer = await key_of(tenant, "observer")
        assert (await s.ask("GET", path, key=observer)).status == 200
        for action in ("pause", "resume", "promote", "rollback", "freeze"):
            asked = await s.ask("POST", f"{path}/{action}", {"reason": "r"}, key=observer)
            assert asked.status == 403
        other = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
        stranger = await key_of(other, "operator")
        assert (await s.ask("GET", path, key=stranger)).status == 404
        asked = await s.ask("POST", f"{path}/rollback", {"reason": "r"}, key=stranger)
        assert asked.status == 404
        assert (await s.ask("GET", "/v1/rollouts", key=stranger)).body == {"rollouts": []}
        assert (await s.ask("GET", path)).body["status"] == "running"


async def test_a_candidate_that_does_not_verify_is_not_started(serving, database, tenant) -> None:
    async with serving() as s:
        shipping = _shipping(s, database, tenant)
        version = (await shipping.publish()).version
        for file in shipping.folder.rglob("*.state.zst"):
            file.write_bytes(file.read_bytes()[:-1] + b"?")
        answer = await s.ask("POST", "/v1/rollouts", {**NEW, "candidate": version})
        assert (answer.status, answer.body["code"]) == (409, "not_allowed"), answer.body
        assert (await s.ask("GET", "/v1/rollouts")).body == {"rollouts": []}
