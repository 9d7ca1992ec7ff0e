"""The status page counts what was decided and learned, for the key's tenant alone."""

from __future__ import annotations

import asyncio

from steersman.db.points import points_of
from steersman.learning.verify import verify
from steersman.platform.postgres.database import as_tenant
from steersman.points.state_bytes import state_sha256
from tests.api.rollouts import decision, teach, until

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


async def test_a_point_that_nobody_used(serving) -> None:
    async with serving() as s:
        status = (await s.ask("GET", "/rl-status")).body
        assert status["guardian_state"] == "NORMAL"
        (point,) = status["points"]
        told = [point[name] for name in ("skill", "decision", "algorithm", "learning", "snapshot")]
        assert told == ["search", "depth", "lin_ucb", "online", "0.1.0"]
        assert [point["decisions"], point["rewarded"], point["learn_lag_s"]] == [0, 0, 0.0]
        assert point["mean_reward"] is None


async def test_decisions_rewards_and_lag_are_counted(serving, database, tenant) -> None:
    async with serving() as s:
        asked = [(await s.ask("POST", "/v1/decide", DECIDE)).body for _ in range(4)]
        connection = await database.connect("worker")
        async with as_tenant(connection, tenant.id):
            for revision, value in ((1, 0.1), (2, 1.0)):
                await connection.execute(
                    "INSERT INTO reward (tenant, decision, revision, spec_hash, value, status, "
                    "terms, final) VALUES ($1, $2, $3, '', $4, 'known', '{}', false)",
                    *(tenant.id, asked[0]["decision_id"], revision, value),
                )
            await connection.execute(
                "INSERT INTO reward (tenant, decision, revision, spec_hash, value, status, "
                "terms, final) VALUES ($1, $2, 1, '', 0.5, 'known', '{}', false)",
                *(tenant.id, asked[1]["decision_id"]),
            )
            await connection.execute(
                "INSERT INTO work (tenant, skill, point, decision, due_at) "
                "VALUES ($1, 'search', 'depth', $2, now() - interval '7 s')",
                *(tenant.id, asked[0]["decision_id"]),
            )
        await connection.close()
        (point,) = (await s.ask("GET", "/rl-status")).body["points"]
        assert (point["decisions"], point["rewarded"], point["degraded"]) == (4, 2, 0)
        assert point["mean_reward"] == 0.75
        assert 7 <= point["learn_lag_s"] < 20
        assert (point["replica_snapshot"], point["replica_seq"]) == ("0.1.0", 0)


async def test_states_are_told_to_the_bit_when_they_are_asked_for(
    serving, database, tenant
) -> None:
    async with serving() as s:
        (plain,) = (await s.ask("GET", "/rl-status?states=true")).body["points"]
        assert "replica_sha256" not in plain  # it is loaded when somebody decides
        await decision(s)
        await asyncio.sleep(1.1)
        (first,) = (await s.ask("GET", "/rl-status?states=true")).body["points"]
        assert first["replica_sha256"] == state_sha256(s.replica("search", "depth").policy.state())
        await teach(s, database, 3)
        await until(s, update_seq=3)
        await asyncio.sleep(1.1)
        (second,) = (await s.ask("GET", "/rl-status?states=true")).body["points"]
        assert (second["replica_seq"], first["replica_seq"]) == (3, 0)
        assert second["replica_sha256"] != first["replica_sha256"]
        connection = await database.connect("app")
        async with as_tenant(connection, tenant.id):
            (row,) = await points_of(connection, tenant.id)
        await connection.close()
        assert (await verify(database, row)).sha256 == second["replica_sha256"]


async def test_asking_often_costs_one_query_a_second(serving) -> None:
    async with serving() as s:
        first = (await s.ask("GET", "/rl-status")).body
        again = (await s.ask("GET", "/rl-status")).body
        assert again["at"] - first["at"] == 0.0 or again["at"] - first["at"] >= 1.0
