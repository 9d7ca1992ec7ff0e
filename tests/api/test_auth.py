"""Keys: who is let in, how soon a revoked key is out, and what holds while the store is away."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from steersman.api.authentication import Authenticator
from steersman.db.keys import create_key, find_keys, revoke_key, rotate_key
from steersman.db.tenants import create_tenant
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

SECRET = b"s" * 32
DECIDE = {"skill": "search", "decision": "depth", "context": {}}
OPEN = {"/healthz", "/readyz", "/metrics", "/openapi.json", "/schemas/events/v1/{file}"}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Store:
    """The real store, which can be cut off and counts how often it is asked."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.asked = 0
        self.away = False

    async def look_up(self, hashes: Sequence[bytes]) -> Any:
        self.asked += 1
        if self.away:
            raise ConnectionRefusedError
        connection = await self.database.connect("app")
        try:
            return await find_keys(connection, hashes)
        finally:
            await connection.close()


async def identify(keys: Authenticator, text: str) -> Any:
    header = f"Bearer {text}".encode()
    return keys.known(header) or await keys.find(header)


async def status_of(keys: Authenticator, text: str) -> int:
    try:
        await identify(keys, text)
    except Refused as refused:
        return refused.problem.status
    return 200


async def new_key(database: Any, tenant: Any, **more: Any) -> Any:
    return await create_key(
        database, tenant.id, secret=SECRET, name="k", actor="test", **{"role": "operator", **more}
    )


async def test_a_key_in_use_is_not_asked_for_again(database, tenant) -> None:
    store = Store(database)
    keys = Authenticator(store.look_up, SECRET)
    row, text = await new_key(database, tenant)
    for _ in range(10):
        assert (await identify(keys, text)).id == row.id
    assert store.asked == 1


@pytest.mark.parametrize(
    "header", [None, b"", b"Basic abc", b"Bearer", b"Bearersk_x", "Bearer schlüssel".encode()]
)
async def test_no_key_is_401_without_asking_the_store(database, header) -> None:
    store = Store(database)
    keys = Authenticator(store.look_up, SECRET)
    with pytest.raises(Refused) as refused:
        keys.known(header) or await keys.find(header)
    assert refused.value.problem.status == 401
    assert store.asked == 0


async def test_unknown_keys_share_queries_and_are_remembered_for_a_moment(database) -> None:
    store, clock = Store(database), Clock()
    keys = Authenticator(store.look_up, SECRET, clock=clock, most_absent=50)
    texts = [f"sk_{i:043d}" for i in range(100)]
    assert set(await asyncio.gather(*(status_of(keys, text) for text in texts * 2))) == {401}
    assert store.asked <= 3
    assert len(keys._absent) <= 50
    asked = store.asked
    assert await status_of(keys, texts[-1]) == 401
    assert store.asked == asked
    clock.now += 2.0
    assert await status_of(keys, texts[-1]) == 401
    assert store.asked == asked + 1


async def test_who_asks_while_a_look_up_breaks_is_answered_too(database) -> None:
    asked = asyncio.Event()
    answers = [KeyError("no such column"), {}]

    async def look_up(hashes: Sequence[bytes]) -> Any:
        asked.set()
        await asyncio.sleep(0.05)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    keys = Authenticator(look_up, SECRET)
    first = asyncio.create_task(status_of(keys, f"sk_{1:043d}"))
    await asked.wait()
    async with asyncio.timeout(5):
        second = await status_of(keys, f"sk_{2:043d}")
    assert (await first, second) == (503, 401)


async def test_too_many_unknown_keys_at_once_are_put_off(database) -> None:
    keys = Authenticator(Store(database).look_up, SECRET, most_pending=10)
    texts = [f"sk_{i:043d}" for i in range(30)]
    assert set(await asyncio.gather(*(status_of(keys, text) for text in texts))) == {401, 503}


async def test_expiry_acts_at_its_time_without_asking(database, tenant) -> None:
    wall = Clock()
    wall.now = time.time()
    keys = Authenticator(Store(database).look_up, SECRET, wall=wall)
    soon = datetime.now(UTC) + timedelta(seconds=60)
    _, text = await new_key(database, tenant, expires_at=soon)
    assert await status_of(keys, text) == 200
    wall.now += 61
    assert await status_of(keys, text) == 401


async def test_rotation_lets_the_old_key_hold_for_its_grace_alone(database, tenant) -> None:
    wall = Clock()
    wall.now = time.time()
    keys = Authenticator(Store(database).look_up, SECRET, wall=wall)
    row, text = await new_key(database, tenant)
    await identify(keys, text)
    _, other = await rotate_key(
        database, tenant.id, row.id, secret=SECRET, actor="test", grace_s=30
    )
    await keys.verify()
    assert await status_of(keys, text) == await status_of(keys, other) == 200
    wall.now += 31
    assert await status_of(keys, text) == 401
    assert await status_of(keys, other) == 200


async def test_while_the_store_is_away_known_keys_hold_and_others_are_503(database, tenant) -> None:
    store, clock = Store(database), Clock()
    keys = Authenticator(store.look_up, SECRET, clock=clock, trust_s=600)
    _, text = await new_key(database, tenant)
    _, unseen = await new_key(database, tenant)
    await identify(keys, text)
    store.away = True
    for _ in range(10):
        clock.now += 59
        with suppress(ConnectionRefusedError):
            await keys.verify()
        assert await status_of(keys, text) == 200
        assert await status_of(keys, unseen) == 503
    clock.now += 59
    assert await status_of(keys, text) == 503
    store.away = False
    assert await status_of(keys, text) == 200


async def test_keys_that_are_not_used_are_forgotten(database, tenant) -> None:
    store, clock = Store(database), Clock()
    keys = Authenticator(store.look_up, SECRET, clock=clock, trust_s=600)
    _, text = await new_key(database, tenant)
    await identify(keys, text)
    clock.now += 601
    await keys.verify()
    assert keys._known == {}


async def a_key_of_each_scope(s, database, tenant) -> dict[str, str]:
    scopes = ("decide", "events", "read", "admin")
    made = [await s.new_key(database, tenant, name=it, scopes=[it]) for it in scopes]
    return {scope: text for scope, (_, text) in zip(scopes, made, strict=True)}


async def test_every_route_but_those_for_anybody_takes_keys_of_one_scope(
    serving, database, tenant
) -> None:
    async with serving() as s:
        texts = await a_key_of_each_scope(s, database, tenant)
        routes = s.service.app.paths()
        assert {path for _, path in routes} > OPEN
        for method, shape in routes:
            if shape in OPEN:
                continue
            path = shape.replace("{id}", "x")
            body = None if method == "GET" else b"["
            assert (await s.ask(method, path, body, key=None)).status == 401, path
            answers = [await s.ask(method, path, body, key=text) for text in texts.values()]
            refused = [answer.status == 403 for answer in answers]
            assert sorted(refused) == [False, True, True, True], (method, path, answers)


async def test_scopes_are_those_that_were_meant(serving, database, tenant) -> None:
    async with serving() as s:
        texts = await a_key_of_each_scope(s, database, tenant)
        asked = [
            ("POST", "/v1/decide", DECIDE, "decide", 200),
            ("POST", "/v1/events", {}, "events", 200),
            ("POST", "/v1/task_result", {}, "events", 422),
            ("GET", "/rl-status", None, "read", 200),
            ("GET", "/v1/decisions/x/explain", None, "read", 404),
            ("GET", "/v1/keys", None, "admin", 200),
            ("POST", "/v1/keys", {}, "admin", 422),
            ("DELETE", "/v1/keys/x", None, "admin", 404),
            ("POST", "/v1/units/export", {"unit": "u"}, "admin", 200),
            ("POST", "/v1/units/erase", {"unit": "u", "reason": "asked"}, "admin", 200),
        ]
        for method, path, body, needed, status in asked:
            for scope, text in texts.items():
                answer = await s.ask(method, path, body, key=text)
                assert answer.status == (status if scope == needed else 403), (path, scope)
            without = await s.ask(method, path, body, key=None)
            assert (without.status, without.headers["www-authenticate"][:6]) == (401, "Bearer")


async def test_a_revoked_key_is_out_within_a_second(serving, database, tenant) -> None:
    async with serving() as s:
        row, text = await s.new_key(database, tenant, role="application")
        assert (await s.ask("POST", "/v1/decide", DECIDE, key=text)).status == 200
        await revoke_key(database, tenant.id, row.id, actor="test")
        begun = time.monotonic()
        while (await s.ask("POST", "/v1/decide", DECIDE, key=text)).status == 200:
            assert time.monotonic() - begun < 1.0


async def test_a_revoked_key_is_out_within_a_second_even_if_nobody_tells(
    serving, database, tenant
) -> None:
    async with serving() as s:
        row, text = await s.new_key(database, tenant, role="application")
        assert (await s.ask("POST", "/v1/decide", DECIDE, key=text)).status == 200
        connection = await database.connect("owner")
        async with connection.transaction():
            await connection.execute("SELECT set_config('app.tenant', $1, true)", str(tenant.id))
            await connection.execute("UPDATE api_key SET revoked_at = now() WHERE id = $1", row.id)
        await connection.close()
        begun = time.monotonic()
        while (await s.ask("POST", "/v1/decide", DECIDE, key=text)).status == 200:
            assert time.monotonic() - begun < 1.0


async def test_another_tenants_key_sees_nothing_of_ours(serving, database) -> None:
    async with serving() as s:
        other = await create_tenant(database, f"o-{time.time_ns()}", actor="test")
        _, text = await s.new_key(database, other)
        decided = await s.ask("POST", "/v1/decide", DECIDE)
        path = f"/v1/decisions/{decided.body['decision_id']}/explain"
        event = {"event_id": "e", "decision_id": decided.body["decision_id"]}
        assert (await s.ask("GET", path)).status == 200
        foreign = await s.ask("GET", path, key=text)
        unknown = await s.ask("GET", f"{path[:-9]}0/explain", key=text)
        assert foreign.status == unknown.status == 404
        assert foreign.body == unknown.body
        assert (await s.ask("POST", "/v1/task_result", event, key=text)).status == 404
        assert (await s.ask("POST", "/v1/decide", DECIDE, key=text)).status == 404
        assert (await s.ask("GET", "/rl-status", key=text)).body["points"] == []
        keys = await s.ask("GET", "/v1/keys", key=text)
        assert len(keys.body["keys"]) == 1
        ours = (await s.ask("GET", "/v1/keys")).body["keys"][0]["id"]
        assert (await s.ask("DELETE", f"/v1/keys/{ours}", key=text)).status == 404
        assert (await s.ask("GET", "/v1/keys")).status == 200
