"""Following: pinned points stay and go on where they were; who is far behind is loaded anew."""

from __future__ import annotations

import asyncio

import pytest

from steersman.db.promotion import pin_point
from steersman.platform.postgres.database import as_tenant
from steersman.serving import point_follower as following
from steersman.serving.replicas import Replicas
from steersman.snapshots.verified_bases import VerifiedBases
from tests.api.rollouts import decision, teach, until

POINT = ("search", "depth")


async def pin(database, tenant, seq: int | None) -> None:
    connection = await database.connect("worker")
    async with as_tenant(connection, tenant.id):
        await pin_point(connection, (tenant.id, *POINT), seq)
    await connection.close()


async def test_a_pinned_point_stays_and_learning_goes_on(database, tenant, serving) -> None:
    async with serving() as s:
        await teach(s, database, 8)
        await until(s, update_seq=8)
        await pin(database, tenant, 5)
        assert await until(s, update_seq=5) < 1.0
        pinned = await decision(s)
        await teach(s, database, 8)
        await asyncio.sleep(1.2)  # longer than a poll
        again = await decision(s)
        assert again["update_seq"] == 5
        action = pinned["action"]
        assert again["distribution"][action] == pytest.approx(pinned["propensity"], abs=1e-7)
        (point,) = (await s.ask("GET", "/rl-status")).body["points"]
        assert (point["pinned_seq"], point["replica_seq"], point["update_seq"]) == (5, 5, 16)
        await pin(database, tenant, None)
        assert await until(s, update_seq=16) < 1.0


async def test_a_pin_ahead_is_reached_in_place(database, tenant, serving) -> None:
    async with serving() as s:
        await teach(s, database, 4)
        await until(s, update_seq=4)
        served = s.service.replicas.find(tenant.id, *POINT)
        await pin(database, tenant, 4)
        await teach(s, database, 4)
        await pin(database, tenant, 6)
        await until(s, update_seq=6)
        assert s.service.replicas.find(tenant.id, *POINT) is served


async def test_who_is_far_behind_is_loaded_aside(
    database, tenant, serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_FAR", 3)
    async with serving() as s:
        await teach(s, database, 2)
        await until(s, update_seq=2)
        served = s.service.replicas.find(tenant.id, *POINT)
        await teach(s, database, 20)
        await until(s, update_seq=22)
        assert s.service.replicas.find(tenant.id, *POINT) is not served


async def test_a_log_that_does_not_fit_is_loaded_anew(database, tenant, serving) -> None:
    async with serving() as s:
        await teach(s, database, 4)
        await until(s, update_seq=4)
        served = s.service.replicas.find(tenant.id, *POINT)
        connection = await database.connect(None)
        await connection.execute(
            "DELETE FROM steersman.update WHERE tenant = $1 AND seq = 3", tenant.id
        )
        await connection.close()
        served.replica.seq = 2  # the next one that it finds is 4
        await s.until(lambda: s.service.replicas.find(tenant.id, *POINT) is not served)
        await until(s, update_seq=4)  # there is a stored state


async def test_every_decision_of_a_pin_is_explained(database, tenant, serving) -> None:
    async with serving() as s:
        await teach(s, database, 6)
        await until(s, update_seq=6)
        await pin(database, tenant, 3)
        await until(s, update_seq=3)
        one = await decision(s)
        path = f"/v1/decisions/{one['decision_id']}/explain?recompute=true"
        explained = (await s.ask("GET", path)).body
        assert explained["recomputed"]["same"] is True
        assert (explained["snapshot"], explained["update_seq"]) == ("0.1.0", 3)
        assert (explained["stage"], explained["arm"]) == ("live", "control")
        assert "rollout" not in explained


async def test_news_that_come_as_it_is_closed_do_not_keep_it_open(database, tmp_path) -> None:
    async with await database.pool("app") as pool:
        for turns in range(6):
            replicas = Replicas(database, pool, VerifiedBases(tmp_path))
            replicas.start()
            while not replicas.refreshed_at:  # noqa: ASYNC110 (no event tells it)
                await asyncio.sleep(0.01)
            replicas._news.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            _, open_still = await asyncio.wait([asyncio.create_task(replicas.close())], timeout=5)
            assert not open_still
