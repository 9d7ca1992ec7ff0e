"""Numbers of rollouts, learning and signing, read from a real store and left for the service."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from steersman.db.rollout_transitions import claim_rollout, move_rollout, start_rollout
from steersman.db.verdicts import add_verdict
from steersman.platform.postgres.database import Database
from steersman.platform.telemetry.exposition import Exchange
from steersman.registry.storage import DirectoryPlace
from steersman.workers.metrics import ControllerMetrics
from tests.db.published import declared, learn, published
from tests.db.rows import connected


@pytest.fixture(scope="module")
def database(database_alone):
    return database_alone


@pytest.fixture
def watching(database, tmp_path):
    """Return what opens a metrics with a connection."""

    @asynccontextmanager
    async def open_one(**options):
        async with connected(database, "worker") as connection:
            metrics = ControllerMetrics(database, tmp_path, process="controller-1", **options)

            async def look():
                families = await metrics.families(connection)
                return {
                    (family.name, *labels): value
                    for family in families
                    for labels, value in family.rows
                }

            yield look

    return open_one


async def a_rollout(database, tenant):
    point = await declared(database, tenant.id)
    await learn(database, point, 3)
    candidate = await published(database, point, 3)
    async with connected(database, "worker", tenant.id) as connection:
        row = await start_rollout(
            connection,
            point,
            candidate=candidate.version,
            control=candidate.line,
            control_seq=3,
            stage="canary",
            share=0.05,
            salt="s",
            plan={},
            now=datetime.now(UTC),
        )
        return await claim_rollout(connection, tenant.id, row.id, "one", idle_s=None)


async def judged(database, row, verdict, *, ago_s=0.0, alive=True):
    async with connected(database, "worker", row.tenant) as connection:
        await add_verdict(
            connection,
            row,
            row.epoch,
            at=datetime.now(UTC) - timedelta(seconds=ago_s),
            verdict=verdict,
            acted="none",
            inputs={"evidence": {"sources": [{"name": "store", "alive": alive}]}},
            reasons=[],
        )


async def moved(database, row, **changes):
    async with connected(database, "worker", row.tenant) as connection:
        return await move_rollout(connection, row, row.epoch, now=datetime.now(UTC), **changes)


async def test_a_rollout_is_held_from_the_first_verdict_that_held_it(database, tenant, watching):
    row = await a_rollout(database, tenant)
    place = row.skill, row.point
    async with watching() as look:
        assert (await look())["rollout_held_seconds", *place] == 0
        await judged(database, row, "hold", ago_s=500)
        await judged(database, row, "promote", ago_s=300)
        await judged(database, row, "hold", ago_s=200)
        await judged(database, row, "hold", ago_s=100, alive=False)
        told = await look()
        assert 200 <= told["rollout_held_seconds", *place] < 260
        assert told["rollout_source_healthy", "store"] == 0
        seen = told[("rollout_controller_seen_timestamp_seconds",)]
        assert 0 <= datetime.now(UTC).timestamp() - seen < 60
    await moved(database, row, status="aborted")


async def test_a_rollout_that_ended_is_counted_whoever_ended_it(database, tenant, watching):
    row = await a_rollout(database, tenant)
    place = row.skill, row.point
    async with watching() as look:
        told = await look()
        assert told["rollout_ended", *place, "rolled_back"] == 0
        await moved(database, row, status="rolled_back")
        told = await look()
        assert told["rollout_ended", *place, "rolled_back"] == 1
        assert ("rollout_ended", *place, "promoted") not in told
        assert ("rollout_held_seconds", *place) not in told


async def test_a_paused_rollout_is_held(database, tenant, watching):
    row = await a_rollout(database, tenant)
    now = [1e9]
    async with watching(clock=lambda: now[0]) as look:
        await look()
        await moved(database, row, status="paused")
        await look()
        now[0] += 50
        assert (await look())["rollout_held_seconds", row.skill, row.point] == 50
    await moved(database, row, status="aborted")


async def test_what_waits_to_be_learned_is_told_until_it_is_learned(database, tenant, watching):
    async with connected(database, "worker", tenant.id) as connection:
        await connection.execute(
            "INSERT INTO work (tenant, skill, point, decision, due_at) "
            "VALUES ($1, 'lag', 'here', $1, now() - interval '90 seconds')",
            tenant.id,
        )
    async with watching() as look:
        assert 90 <= (await look())["learner_lag_seconds", "lag", "here"] < 150
        async with connected(database, "worker", tenant.id) as connection:
            await connection.execute("DELETE FROM work WHERE skill = 'lag'")
        assert (await look())["learner_lag_seconds", "lag", "here"] == 0


async def test_the_first_timestamp_that_expires_is_told(database, tenant, watching, tmp_path):
    folder = tmp_path / "registry" / tenant.name / "metadata"
    folder.mkdir(parents=True)
    signed = {"signed": {"expires": "2026-05-01T00:00:00Z"}, "signatures": []}
    (folder / "timestamp.json").write_text(json.dumps(signed))
    async with watching(place=DirectoryPlace(tmp_path / "registry")) as look:
        told = await look()
    expires = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
    assert told[("registry_expires_timestamp_seconds",)] == expires


async def test_numbers_are_left_while_it_runs_and_taken_back_when_it_stops(database, tmp_path):
    left = tmp_path / "metrics"
    left.mkdir()
    forgotten = left / "controller-0.json"
    forgotten.write_text("[]")
    os.utime(forgotten, (0, 0))
    stop = asyncio.Event()
    metrics = ControllerMetrics(database, tmp_path, process="controller-1")
    running = asyncio.create_task(metrics.run(stop))
    reader = Exchange(left, "")
    try:
        async with asyncio.timeout(20):
            while not (found := reader.others()):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)
    finally:
        stop.set()
        await running
    assert list(found) == ["controller-1"]
    assert reader.others() == {}


async def test_a_store_that_is_away_is_told_in_the_log_and_asked_again(tmp_path, caplog):

    stop = asyncio.Event()
    nowhere = Database(f"postgresql://u@/d?host={tmp_path}")
    running = asyncio.create_task(ControllerMetrics(nowhere, tmp_path).run(stop))
    async with asyncio.timeout(20):
        while "cannot be read now" not in caplog.text:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
    assert not running.done()
    stop.set()
    await running
