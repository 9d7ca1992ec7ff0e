"""Keys over HTTP: made, used, rotated, revoked, by who may, of their own tenant."""

from __future__ import annotations

import time
from uuid import uuid4

DECIDE = {"skill": "search", "decision": "depth", "context": {}}


async def test_a_key_lives_and_dies(serving) -> None:
    async with serving() as s:
        made = await s.ask("POST", "/v1/keys", {"name": "app", "role": "application"})
        assert made.status == 201
        assert made.body["scopes"] == ["decide", "events"]
        assert made.body["key"].startswith(made.body["prefix"])
        assert (await s.ask("POST", "/v1/decide", DECIDE, key=made.body["key"])).status == 200
        path = f"/v1/keys/{made.body['id']}"
        rotated = await s.ask("POST", f"{path}/rotate", {"grace_s": 0})
        assert (rotated.status, rotated.body["rotated_from"]) == (201, made.body["id"])
        assert (await s.ask("POST", "/v1/decide", DECIDE, key=rotated.body["key"])).status == 200
        assert (await s.ask("POST", f"{path}/rotate", {})).status == 404
        revoked = await s.ask("DELETE", f"/v1/keys/{rotated.body['id']}")
        assert revoked.status == 200
        assert revoked.body["revoked_at"] <= time.time() + 1
        keys = (await s.ask("GET", "/v1/keys")).body["keys"]
        assert [key["name"] for key in keys] == ["test", "app", "app"]
        assert all("key" not in key for key in keys)


async def test_an_expiring_key_with_scopes_of_its_own(serving) -> None:
    async with serving() as s:
        asked = {"name": "n", "scopes": ["read"], "expires_at": time.time() + 3600}
        made = (await s.ask("POST", "/v1/keys", asked)).body
        assert (made["role"], made["scopes"]) == ("custom", ["read"])
        assert (await s.ask("GET", "/rl-status", key=made["key"])).status == 200
        asked["expires_at"] = time.time() - 1
        gone = (await s.ask("POST", "/v1/keys", asked)).body
        assert (await s.ask("GET", "/rl-status", key=gone["key"])).status == 401


async def test_what_is_not_allowed_is_refused(serving) -> None:
    async with serving() as s:
        for body in (
            {},
            {"name": ""},
            {"name": "n", "role": "king"},
            {"name": "n", "scopes": []},
            {"name": "n", "scopes": ["all"]},
            {"name": "n", "role": "observer", "scopes": ["admin"]},
            {"name": "n", "role": "king", "scopes": ["read"]},
            {"name": "n", "role": "observer", "expires_at": 1e300},
            {"name": "n\n", "role": "observer"},
        ):
            answer = await s.ask("POST", "/v1/keys", body)
            assert (answer.status, answer.body["code"]) == (422, "invalid"), body
        for identifier in (uuid4(), "x", "%2e%2e"):
            assert (await s.ask("DELETE", f"/v1/keys/{identifier}")).status == 404
            assert (await s.ask("POST", f"/v1/keys/{identifier}/rotate", {})).status == 404
        assert (await s.ask("POST", f"/v1/keys/{uuid4()}/rotate", {"grace_s": -1})).status == 422
