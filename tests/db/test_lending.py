"""Connection reuse: reset, loss and idle timeout."""

import asyncio

import pytest

from steersman.platform.postgres.database import as_tenant
from steersman.platform.postgres.idle_pool import LendingDatabase
from tests.kept import run


@pytest.fixture
def lending(database):
    made = LendingDatabase(of=database)
    yield made
    run(made.close())


async def _pid(connection):
    return await connection.fetchval("SELECT pg_backend_pid()")


async def test_what_was_closed_is_lent_to_the_next_of_its_role(lending):
    first = await lending.connect("app")
    pid = await _pid(first)
    await first.close()
    other, again = await lending.connect("worker"), await lending.connect("app")
    assert await _pid(again) == pid != await _pid(other)
    assert await again.fetchval("SELECT current_user") == "steersman_app"
    assert await other.fetchval("SELECT current_user") == "steersman_worker"
    at_once = await lending.connect("app")
    assert await _pid(at_once) != pid
    for one in (other, again, at_once):
        await one.close()


async def test_nothing_that_one_set_is_there_for_the_next(lending, tenant):
    first = await lending.connect("app")
    pid = await _pid(first)
    disk = await first.fetchval("SHOW synchronous_commit")
    async with as_tenant(first, tenant.id):
        assert await first.fetchval("SELECT current_setting('app.tenant')") == str(tenant.id)
    await first.execute("SELECT set_config('app.tenant', 'left', false)")
    await first.execute("SET synchronous_commit = off; SET search_path = public")
    await first.close()
    second = await lending.connect("app")
    assert await _pid(second) == pid
    assert await second.fetchval("SELECT current_setting('app.tenant', true)") in (None, "")
    assert await second.fetchval("SHOW synchronous_commit") == disk
    assert "steersman" in await second.fetchval("SHOW search_path")
    await second.close()


@pytest.mark.parametrize("how", ["lost", "within a transaction"])
async def test_one_that_is_no_more_of_use_is_not_lent_again(lending, database, how):
    first = await lending.connect("app")
    pid = await _pid(first)
    if how == "lost":
        await first.close()
        killer = await database.connect(None)
        await killer.execute(f"SELECT pg_terminate_backend({pid}, 5000)")
        await killer.close()
        await asyncio.sleep(0.1)  # its end is heard of
    else:
        await first.execute("BEGIN")
        await first.close()
    second = await lending.connect("app")
    assert await _pid(second) != pid
    await second.close()


async def test_a_server_that_does_not_reset_one_undoes_nothing(lending, database, monkeypatch):
    monkeypatch.setattr("steersman.platform.postgres.idle_pool._PATIENCE_S", 0.05)
    first = await lending.connect("app")

    async def hanging(_):
        await asyncio.sleep(60)

    monkeypatch.setattr("steersman.platform.postgres.idle_pool.reset", hanging)
    await first.close()  # no error: what was done with it is done
    assert not lending._idle["app"]


async def test_idle_ones_end(database):
    lending = LendingDatabase(of=database, idle_s=0.05)
    first = await lending.connect("app")
    pid = await _pid(first)
    await first.close()
    await asyncio.sleep(0.3)
    second = await lending.connect("app")
    assert await _pid(second) != pid
    await second.close()
    await lending.close()
    assert not any(lending._idle.values())


async def test_no_more_than_two_of_a_role_wait(lending):
    five = [await lending.connect("app") for _ in range(5)]
    await asyncio.gather(*(one.close() for one in five))
    assert len(lending._idle["app"]) == 2
    await five[0].close()  # twice is once


async def test_what_comes_back_after_the_end_is_closed(database):
    lending = LendingDatabase(of=database)
    late = await lending.connect("app")
    await lending.close()
    assert await late.fetchval("SELECT 1") == 1
    await late.close()
    assert not any(lending._idle.values())
