"""Shipping job: registries are fresh and contain the learned states."""

import asyncio
import shutil
import time
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest

from steersman.db.audit import record
from steersman.db.audit_chain import audit_head
from steersman.db.declarations import declare
from steersman.db.incidents import incidents_of
from steersman.db.promotion import pin_point
from steersman.db.snapshots import retract
from steersman.db.tenants import create_tenant
from steersman.platform.postgres.database import as_tenant
from steersman.registry.consumer import Consumer
from steersman.workers.snapshot_publisher import ShippingSettings, run_shipping
from tests.db.rows import connected
from tests.learning.shipping_world import promote_point, publish_point, registry_of
from tests.learning.world import (
    declared,
    document,
    learn_all,
    point_of,
    rows,
    spoil,
    traffic,
)

QUICK = ShippingSettings(publish_s=3600.0, refresh_s=3600.0, look_s=0.05)


@asynccontextmanager
async def shipping(database, registries, *, looks=1, settings=QUICK):
    """Run the job until every registry was checked; yield the results."""
    stop, seen = asyncio.Event(), []
    names = set(registries)
    enough = asyncio.Event()

    def watch(done):
        seen.append(done)
        if all(sum(one.tenant == name for one in seen) >= looks for name in names):
            enough.set()

    running = asyncio.create_task(
        run_shipping(database, stop=stop, registries=registries.get, watch=watch, settings=settings)
    )
    try:
        waiting = asyncio.create_task(enough.wait())
        await asyncio.wait({waiting, running}, timeout=30, return_when="FIRST_COMPLETED")
        assert enough.is_set(), running
        yield seen
    finally:
        stop.set()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(running, 30)


def consumer(tmp_path, tenant):
    root = (tmp_path / "keys" / tenant.name / "root.json").read_bytes()
    return Consumer(tmp_path / "registry" / tenant.name, root, tmp_path / "cache", refresh_s=0)


async def learned(database, tenant, n, *, seed=0):
    row = await declared(database, tenant.id)
    await traffic(database, row, n, seed=seed)
    await learn_all(database)


async def test_what_was_learned_is_published_and_the_audit_anchored(database, tenant, tmp_path):
    registries = {tenant.name: registry_of(tmp_path, tenant)}
    await learned(database, tenant, 5)
    async with shipping(database, registries, looks=3) as seen:
        pass
    assert seen[0].published == {"search/depth": "0.1.1"}
    assert all(not one.published for one in seen[1:])
    day = seen[0].expires - datetime.now(UTC)
    assert timedelta(hours=23) < day <= timedelta(days=1)
    reader = consumer(tmp_path, tenant)
    assert reader.versions("search", "depth") == ["0.1.1"]
    connection = await database.connect("worker")
    async with as_tenant(connection, tenant.id):
        head = await audit_head(connection, tenant.id)
    await connection.close()
    assert (reader.anchor().seq, reader.anchor().digest) == (head.seq, head.hash)


async def test_a_version_an_hour_and_none_without_news(database, tenant, tmp_path):
    registries = {tenant.name: registry_of(tmp_path, tenant)}
    await learned(database, tenant, 5)
    await publish_point(database, tenant.id, registries[tenant.name])
    await learned(database, tenant, 5, seed=1)
    async with shipping(database, registries) as seen:
        assert not seen[0].published  # the last one is not an hour old
    hour = "UPDATE snapshot SET published_at = published_at - interval '61 min' WHERE id = '0.1.1'"
    await rows(database, tenant.id, hour)
    async with shipping(database, registries, looks=2) as seen:
        pass
    assert [one.published for one in seen] == [{"search/depth": "0.1.2"}, {}]
    await rows(database, tenant.id, hour.replace("0.1.1", "0.1.2"))
    async with shipping(database, registries) as seen:
        assert seen[0].published in ({}, {"search/depth": "0.1.2"})  # nothing new: the same again
    assert len(await rows(database, tenant.id, "SELECT FROM snapshot")) == 3


async def test_nothing_is_published_while_a_rollout_compares(database, tenant, tmp_path):
    registries = {tenant.name: registry_of(tmp_path, tenant)}
    await learned(database, tenant, 5)
    await rows(
        database,
        tenant.id,
        "INSERT INTO rollout (tenant, id, skill, point, status, stage, step, share, salt, "
        "candidate, control, control_seq, plan, concurrent) VALUES ($1, $1, 'search', 'depth', "
        "'running', 'canary', 1, 0.05, 's', '0.1.1', '0.1.0', 0, '{}', false)",
        tenant.id,
    )
    async with shipping(database, registries) as seen:
        assert not seen[0].published
        assert seen[0].expires is not None


async def test_one_tenant_in_trouble_keeps_no_other_waiting(database, tenant, tmp_path):
    other = await create_tenant(database, f"o-{time.time_ns()}", actor="test")
    registries = {one.name: registry_of(tmp_path, one) for one in (tenant, other)}
    for one in (tenant, other):
        await learned(database, one, 5)
    (tmp_path / "keys" / tenant.name / "targets.pem").unlink()
    async with shipping(database, registries) as seen:
        by_name = {one.tenant: one for one in seen}
    assert by_name[tenant.name].failed
    assert by_name[other.name].published == {"search/depth": "0.1.1"}


async def test_a_tenant_without_keys_is_left_alone(database, tenant, tmp_path):
    other = await create_tenant(database, f"o-{time.time_ns()}", actor="test")
    await learned(database, tenant, 5)
    async with shipping(database, {other.name: registry_of(tmp_path, other)}) as seen:
        assert {one.tenant for one in seen} == {other.name}
    assert len(await rows(database, tenant.id, "SELECT FROM snapshot")) == 1


async def test_of_two_processes_one_ships(database, tenant, tmp_path):
    registries = {tenant.name: registry_of(tmp_path, tenant)}
    async with shipping(database, registries):
        stop, seen = asyncio.Event(), []
        second = asyncio.create_task(
            run_shipping(
                database, stop=stop, registries=registries.get, watch=seen.append, settings=QUICK
            )
        )
        await asyncio.sleep(0.5)
        assert seen == []
        stop.set()
        await second


async def test_a_drifted_line_is_pinned_before_it_is_published(database, tenant, tmp_path):
    registries = {tenant.name: registry_of(tmp_path, tenant)}
    await learned(database, tenant, 130)
    await publish_point(database, tenant.id, registries[tenant.name])
    await promote_point(database, tenant.id, "0.1.1")
    await learned(database, tenant, 40, seed=1)
    await rows(
        database,
        tenant.id,
        "INSERT INTO update SELECT tenant, skill, point, snapshot, seq + 40, gen_random_uuid(), "
        "revision, (SELECT array_agg(e * 5) FROM unnest(x) AS e), key, action, reward_change, "
        "weight_change, weight, bucket, traceparent, at FROM update WHERE snapshot = '0.1.1'",
    )
    await rows(database, tenant.id, "UPDATE learner SET seq = seq + 40")
    hour = "UPDATE snapshot SET published_at = published_at - interval '61 min' WHERE id = '0.1.1'"
    await rows(database, tenant.id, hour)
    async with shipping(database, registries, looks=3) as seen:
        pass
    assert "largest eigenvalue" in seen[0].drifted["search/depth"]
    assert "largest eigenvalue" in seen[0].refused["search/depth"]
    assert not any(one.published or one.refused for one in seen[1:])  # not tried for an hour
    assert (await point_of(database, tenant.id)).pinned_seq == 0


async def test_an_audit_that_was_rewritten_opens_an_incident(database, tenant, tmp_path):
    publisher = registry_of(tmp_path, tenant)
    await learned(database, tenant, 5)
    publisher.anchor(99, bytes(32))
    async with shipping(database, {tenant.name: publisher}, looks=2) as seen:
        pass
    assert "audit" in seen[0].failed[0]
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        (incident,) = await incidents_of(connection, tenant.id)
    await connection.close()
    assert incident.kind == "audit"
    assert all(one.expires is not None for one in seen)  # consumers must believe it all the same


async def test_an_audit_that_was_cut_and_went_on_is_not_signed(database, tenant, tmp_path):
    """The newest entry has a higher number, but the signed one differs."""
    publisher = registry_of(tmp_path, tenant)
    await learned(database, tenant, 5)
    async with shipping(database, {tenant.name: publisher}):
        pass
    signed = publisher.anchored()
    async with connected(database, None) as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(
            "DELETE FROM audit WHERE tenant = $1 AND seq = $2", tenant.id, signed[0]
        )
    async with acting(database, tenant) as connection:
        for action in ("one", "two"):
            await record(connection, tenant.id, "cli:ann", action, "x")
    async with shipping(database, {tenant.name: publisher}) as seen:
        pass
    assert "of the audit log differs now" in seen[0].failed[0]
    assert "steersman audit accept" in seen[0].failed[0]
    assert publisher.anchored() == signed
    async with acting(database, tenant) as connection:
        (incident,) = await incidents_of(connection, tenant.id)
    assert incident.kind == "audit"


async def test_a_registry_is_kept_fresh_though_the_audit_is_behind(database, tenant, tmp_path):
    """After a database restore the signed entry is missing."""
    publisher = registry_of(tmp_path, tenant)
    publisher.anchor(99, bytes(32))
    before = publisher.refresh_timestamp().version
    async with shipping(database, {tenant.name: publisher}) as seen:
        pass
    assert "signed entry 99 (000000000000) of the audit log is missing" in seen[0].failed[0]
    assert seen[0].expires is not None
    assert publisher.refresh_timestamp().version == before + 2


async def test_a_registry_that_went_back_is_told_and_lines_are_watched_all_the_same(
    database, tenant, tmp_path
):
    registry = registry_of(tmp_path, tenant)
    await learned(database, tenant, 130)
    await publish_point(database, tenant.id, registry)
    await promote_point(database, tenant.id, "0.1.1")
    shutil.copytree(tmp_path / "registry" / tenant.name, tmp_path / "old")
    await learned(database, tenant, 40, seed=1)
    made = await publish_point(database, tenant.id, registry)
    row = await point_of(database, tenant.id)
    async with acting(database, tenant) as connection:
        await retract(connection, (row.tenant, row.skill, row.point), made.version)
    await rows(
        database,
        tenant.id,
        "INSERT INTO update SELECT tenant, skill, point, snapshot, seq + 40, gen_random_uuid(), "
        "revision, (SELECT array_agg(e * 5) FROM unnest(x) AS e), key, action, reward_change, "
        "weight_change, weight, bucket, traceparent, at FROM update WHERE snapshot = '0.1.1'",
    )
    await rows(database, tenant.id, "UPDATE learner SET seq = seq + 40")
    shutil.rmtree(tmp_path / "registry" / tenant.name)
    shutil.copytree(tmp_path / "old", tmp_path / "registry" / tenant.name)
    async with shipping(database, {tenant.name: registry}) as seen:
        pass
    assert all("registry rollback detected" in text for text in seen[0].failed)
    assert "search/depth" in seen[0].drifted


async def test_what_was_retracted_is_taken_out_as_often_as_it_is_put_back(
    database, tenant, tmp_path
):
    """A restored registry backup brings the version back."""
    registry = registry_of(tmp_path, tenant)
    await learned(database, tenant, 5)
    made = await publish_point(database, tenant.id, registry)
    folder = tmp_path / "registry" / tenant.name
    shutil.copytree(folder, tmp_path / "backup")
    row = await point_of(database, tenant.id)
    async with acting(database, tenant) as connection:
        await retract(connection, (row.tenant, row.skill, row.point), made.version)
    name = f"{row.skill}/{row.point} {made.version}"
    async with shipping(database, {tenant.name: registry}) as seen:
        assert seen[0].retracted == [name]
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "backup", folder)
        registry.accept_older()
        for _ in range(100):
            await asyncio.sleep(0.1)
            if any(one.retracted for one in seen[1:]):
                break
        assert [one.retracted for one in seen[1:] if one.retracted] == [[name]]
    assert registry.listed() == set()


@pytest.mark.slow
async def test_it_goes_on_when_the_connection_is_lost(database, tenant, tmp_path):
    registries = {tenant.name: registry_of(tmp_path, tenant)}
    async with shipping(database, registries) as seen:
        connection = await database.connect(None)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        )
        await connection.close()
        before = len(seen)
        for _ in range(100):
            await asyncio.sleep(0.1)
            if len(seen) > before + 1:
                break
        assert len(seen) > before + 1


async def test_what_was_retracted_without_keys_is_taken_out_once(database, tenant, tmp_path):
    registry = registry_of(tmp_path, tenant)
    await learned(database, tenant, 5)
    made = await publish_point(database, tenant.id, registry)
    row = await point_of(database, tenant.id)
    async with acting(database, tenant) as connection:
        await retract(connection, (row.tenant, row.skill, row.point), made.version)
    async with shipping(database, {tenant.name: registry}, looks=2) as seen:
        pass
    assert seen[0].retracted == [f"{row.skill}/{row.point} {made.version}"]
    assert seen[1].retracted == []
    assert made.version not in consumer(tmp_path, tenant).versions(row.skill, row.point)
    async with shipping(database, {tenant.name: registry}) as seen:  # by another process
        assert (seen[0].retracted, seen[0].failed) == ([], [])


async def test_of_a_point_that_is_pinned_nothing_is_published(database, tenant, tmp_path):
    registry = registry_of(tmp_path, tenant)
    await learned(database, tenant, 5)
    row = await point_of(database, tenant.id)
    point = row.tenant, row.skill, row.point
    for seq, published in ((0, {}), (None, {f"{row.skill}/{row.point}": "0.1.1"})):
        async with acting(database, tenant) as connection:
            await pin_point(connection, point, seq)
        async with shipping(database, {tenant.name: registry}) as seen:
            assert seen[0].published == published


@asynccontextmanager
async def acting(database, tenant):
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, tenant.id):
            yield connection
    finally:
        await connection.close()


async def test_a_point_that_cannot_be_read_is_told_and_the_others_are_shipped(
    database, tenant, tmp_path, caplog
):
    registries = {tenant.name: registry_of(tmp_path, tenant)}
    await learned(database, tenant, 5)
    text = document().replace("decision: depth", "decision: width")
    await declare(database, tenant.id, text, actor="test")
    await spoil(database, tenant.id, "document || 'sails: 3\n'", point="width")
    async with shipping(database, registries, looks=3) as seen:
        pass
    assert seen[0].published == {"search/depth": "0.1.1"}
    assert all("cannot read the declaration of search/width" in one.failed[0] for one in seen)
    assert all(one.expires is not None for one in seen)
    told = [record for record in caplog.records if "search/width" in record.message]
    assert len(told) == 1
    assert "steersman tenant declare" in told[0].message


async def test_what_breaks_for_one_tenant_ends_nothing_for_another(
    database, tenant, tmp_path, monkeypatch, caplog
):
    """Also for unexpected errors, such as those of a library."""
    other = await create_tenant(database, f"o-{time.time_ns()}", actor="test")
    registries = {one.name: registry_of(tmp_path, one) for one in (tenant, other)}
    await learned(database, tenant, 5)
    await learned(database, other, 5)

    def breaks(*_, **__):
        raise ZeroDivisionError("of a library")

    monkeypatch.setattr(registries[tenant.name], "publish", breaks)
    async with shipping(database, registries, looks=2) as seen:
        pass
    of = {name: [one for one in seen if one.tenant == name] for name in registries}
    assert any("of a library" in text for one in of[tenant.name] for text in one.failed)
    assert any(one.published == {"search/depth": "0.1.1"} for one in of[other.name])
    assert "of a library" in caplog.text
