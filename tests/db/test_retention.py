"""Retention: days leave PostgreSQL only when the cold store has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import numpy as np
import pytest

from steersman.db.archive.compaction import compact
from steersman.db.archive.destination import Directory
from steersman.db.archive.expire import exported
from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.erasure import erase
from steersman.db.packed_events import log_events
from steersman.db.retention import keep
from steersman.db.tenants import create_tenant
from steersman.errors import InputError
from steersman.learning.verify import verify
from steersman.wire import new_id
from tests.db.rows import connected, counts, decision, event
from tests.learning.world import decided, declared, document, happened, learn_all
from tests.learning.world import write as write_rows


async def test_old_days_go_once_the_cold_store_has_them(days):
    await days.write(day=0)
    await days.write(day=2)
    kept = await days.keep()
    assert set(days.names(0)) | set(days.names(2)) <= set(kept.waiting)
    assert set(days.names(1)) <= set(kept.dropped)  # nobody has rows there
    assert await days.existing() == days.names(0, 2)
    await days.compact()
    assert set(days.names(0, 2)) <= set((await days.keep()).dropped)
    assert await days.existing() == []
    left = await counts(days.database, days.tenant.id)
    assert {table: left.get(table, 0) for table in ("decision", "event", "reward")} == {
        "decision": 0,
        "event": 0,
        "reward": 0,
    }


async def test_days_that_are_not_old_stay(days):
    await days.write(day=2)
    await days.compact()
    await days.keep(days=38)
    assert await days.existing() == days.names(2)
    await days.keep(days=37)
    assert await days.existing() == []


async def test_a_row_that_came_after_the_export_keeps_its_day(days):
    await days.write()
    await days.compact()
    await days.write()
    async with connected(days.database, "owner", days.tenant.id) as connection:
        assert not await exported(connection, days.tenant.id, "decision", days.first)
        assert await exported(connection, days.tenant.id, "decision", days.first.replace(year=1990))
    kept = await days.keep()
    assert "rows of event that are not in the cold store" in kept.waiting[days.names(0)[0]]
    await days.compact()
    await days.keep()
    assert await days.existing() == []


async def test_every_tenant_has_to_be_exported(days):
    other = await create_tenant(days.database, f"t-{uuid4().hex}", actor="test")
    await days.write()
    await days.write(other)
    await days.compact()
    await days.keep()
    assert await days.existing() == days.names(0)
    # What is kept for one is kept whole for the other.
    assert (await counts(days.database, days.tenant.id))["reward"] == 1
    await days.compact(other)
    await days.keep()
    assert await days.existing() == []


async def test_an_open_reward_window_keeps_its_day(days):
    await days.write(window_ends=days.now + timedelta(hours=1))
    await days.compact()
    kept = await days.keep()
    assert "reward window is open" in kept.waiting[days.names(0)[1]]
    assert "belong to decisions whose reward window is open" in kept.waiting[days.names(0)[0]]
    assert await days.existing() == days.names(0)
    days.now += timedelta(hours=1)
    await days.keep()
    assert await days.existing() == []


async def test_an_event_that_counts_in_an_open_window_keeps_its_day(days):
    await days.write(happens=2, window_ends=days.now + timedelta(hours=1))
    await days.write(day=1)
    await days.compact()
    await days.keep()
    assert await days.existing() == [days.names(2)[0], days.names(0)[1]]


@pytest.mark.parametrize("due", [timedelta(days=-1), timedelta(days=1)])
async def test_what_the_learner_is_not_done_with_keeps_its_days(days, due):
    row = await days.write(happens=1)
    await days.write(day=2)
    other = await create_tenant(days.database, f"t-{uuid4().hex}", actor="test")
    await days.queue(row, days.now + due)
    await days.compact(days.tenant, other)
    kept = await days.keep()
    waiting = [days.names(1)[0], days.names(0)[1]]
    assert await days.existing() == waiting
    for name in waiting:
        assert kept.waiting[name].startswith(f"tenant {days.tenant.id} has ")
        assert "the learner has not processed" in kept.waiting[name]
    await days.learn()
    await days.keep()
    assert await days.existing() == []


async def test_days_without_a_partition_wait_for_the_learner_too(days):
    row = await days.write(day=5)
    await days.happen(row.id, 6)
    await days.compact()
    kept = await days.keep()
    assert kept.deleted == 0
    assert len([name for name in kept.waiting if str(days.tenant.id) in name]) == 3
    await days.learn()
    assert (await days.keep()).deleted == 3


@pytest.mark.parametrize(
    ("day", "about"), [(0, "decision"), (1, "decision"), (0, "episode"), (1, "episode")]
)
@pytest.mark.parametrize("scope", ["episode", "decision"])
@pytest.mark.parametrize("pending", ["open", "learner", "no more"])
async def test_what_counts_for_a_younger_decision_of_the_episode_stays(
    days, day, about, scope, pending
):
    text = document(reward=f"window_s: 3600, scope: {scope}")
    declaration = await declare(days.database, days.tenant.id, text, actor="test")
    mine = {"episode": "e", "spec_hash": declaration.spec_hash}
    old = await days.write(happens=None, **mine)
    ends = days.now + timedelta(minutes=10 if pending == "open" else -10)
    young = await days.write(day=40, happens=None, window_ends=ends, **mine)
    await days.write(day=40, happens=None, window_ends=days.now + timedelta(hours=1))
    if about == "decision":
        await days.happen(old.id, day)
    else:
        await days.happen(None, day, episode="e")
    await days.learn()
    if pending == "learner":
        await days.queue(young, days.now)
    await days.compact()
    kept = await days.keep()
    if scope == "decision" or pending == "no more":
        assert await days.existing() == []
        return
    assert await days.existing() == [days.names(day)[0], days.names(0)[1]]
    for name in await days.existing():
        assert "of an episode with decisions" in kept.waiting[name]


async def test_an_episode_counts_though_its_declaration_cannot_be_read(days):
    text = document(reward="window_s: 3600, scope: episode")
    declaration = await declare(days.database, days.tenant.id, text, actor="test")
    mine = {"episode": "e", "spec_hash": declaration.spec_hash}
    await days.write(**mine)
    ends = days.now + timedelta(days=1)
    await days.write(day=40, happens=None, window_ends=ends, **mine)
    async with connected(days.database, "owner", days.tenant.id) as connection:
        await connection.execute("UPDATE spec SET document = document || 'sails: 3'")
    await days.compact()
    await days.keep()
    assert await days.existing() == days.names(0)


@pytest.mark.parametrize("learner", ["up", "down"])
async def test_a_reward_is_learned_whole_though_its_day_is_old(database_alone, tmp_path, learner):
    tenant = await create_tenant(database_alone, f"t-{uuid4().hex}", actor="test")
    row = await declared(database_alone, tenant.id, reward="window_s: 1209600")
    now = datetime.now(UTC)
    async with connected(database_alone, "owner") as connection:
        await connection.execute("SELECT make_partitions($1, 16)", now.date() - timedelta(days=14))
    made = decided(row, np.random.default_rng(0), at=(now - timedelta(days=10)).timestamp())
    await write_rows(database_alone, [made], [happened(made, {"success": 1.0})])
    if learner == "up":
        await learn_all(database_alone)
    await compact(database_alone, Directory(tmp_path / "cold"), tenants=[tenant.id])
    for days_later in (0, 5):  # the window closes in between
        moment = now + timedelta(days=days_later)
        await keep(database_alone, days=7, now=moment)
    later = (now + timedelta(days=5)).timestamp()
    await learn_all(database_alone, clock=lambda: later)
    async with connected(database_alone, "worker", tenant.id) as connection:
        learned = await connection.fetchrow(
            "SELECT sum(reward_change) AS reward, sum(weight_change) AS weight FROM update"
        )
        last = await connection.fetchrow(
            "SELECT value, status, final FROM reward ORDER BY revision DESC LIMIT 1"
        )
    assert tuple(learned) == (1.0, 1.0)
    assert tuple(last) == (1.0, "scored", True)


async def test_a_day_in_use_waits_and_nobody_waits_for_it(days):
    await days.write()
    await days.compact()
    async with connected(days.database, "app", days.tenant.id) as connection:
        await connection.execute("SELECT count(*) FROM decision")
        kept = await days.keep()
        assert kept.waiting[days.names(0)[1]] == "another transaction uses it"
    await days.keep()
    assert await days.existing() == []


async def test_days_without_a_partition_are_deleted_row_by_row(days):
    row = await days.write(day=5)
    stays = await days.write(day=39)
    kept = await days.keep()
    assert kept.deleted == 0
    waiting = [name for name in kept.waiting if str(days.tenant.id) in name]
    assert len(waiting) == 2
    await days.compact()
    assert (await days.keep()).deleted == 2
    async with connected(days.database, "app", days.tenant.id) as connection:
        left = [found["id"] for found in await connection.fetch("SELECT id FROM decision")]
    assert left == [stays.id]
    assert row.id not in left


async def test_keys_are_forgotten_after_their_time(days):
    old = decision(days.tenant.id, idempotency_key="old", body_hash=bytes(16))
    new = decision(days.tenant.id, idempotency_key="new", body_hash=bytes(16))
    async with connected(days.database) as connection:
        await log_decisions(connection, [old, new])
    async with connected(days.database, "owner", days.tenant.id) as connection:
        await connection.execute(
            "UPDATE idempotency SET at = now() - interval '31 days' WHERE key = 'old'"
        )
    await keep(days.database, days=36_500)
    async with connected(days.database, "app", days.tenant.id) as connection:
        left = [row["key"] for row in await connection.fetch("SELECT key FROM idempotency")]
    assert left == ["new"]


async def test_an_event_is_told_from_a_new_one_for_as_long_as_its_decision_is_here(days):
    """A client repeats an event after months, because the answer was lost."""
    old = decision(days.tenant.id, id=new_id(days.at(0).timestamp()))
    told = event(days.tenant.id, old.id, id="told")
    async with connected(days.database) as connection:
        await log_decisions(connection, [old])
        assert await log_events(connection, [told]) == {}
    async with connected(days.database, "owner", days.tenant.id) as connection:
        await connection.execute("UPDATE idempotency SET at = $1", days.at(0))
    await keep(days.database, days=36_500, idempotency_days=1)
    async with connected(days.database) as connection:
        assert list((await log_events(connection, [told])).values()) == ["replayed"]
    async with connected(days.database, "owner", days.tenant.id) as connection:
        await connection.execute("DELETE FROM decision")
    kept = await keep(days.database, days=36_500, idempotency_days=1)
    assert kept.idempotency == 1
    async with connected(days.database) as connection:
        assert list((await log_events(connection, [told])).values()) == ["unknown"]


async def test_an_event_whose_day_is_over_is_answered_as_before(days):
    made = await days.write(happens=None)
    at = days.at(0)
    stored = event(days.tenant.id, made.id, at=at, received_at=at)
    async with connected(days.database) as connection:
        assert await log_events(connection, [stored]) == {}
    await days.learn()
    await days.compact()
    assert (await days.keep()).dropped
    new = event(days.tenant.id, made.id, at=at, received_at=at)
    other = stored._replace(body_hash=bytes(range(16)))
    for rows, said in (([stored, new], ["replayed", "unknown"]), ([other], ["conflict"])):
        async with connected(days.database) as connection:
            assert list((await log_events(connection, rows)).values()) == said


async def test_a_decision_that_comes_back_after_its_day_is_not_learned_again(
    database_alone, tmp_path
):
    """A client sends a record again after its rewards and events have left."""
    tenant = await create_tenant(database_alone, f"t-{uuid4().hex}", actor="test")
    row = await declared(database_alone, tenant.id, reward="missing: {value: 0.0}")
    now = datetime.now(UTC)
    async with connected(database_alone, "owner") as connection:
        await connection.execute("SELECT make_partitions($1, 16)", now.date() - timedelta(days=14))
    made = decided(row, np.random.default_rng(0), at=(now - timedelta(days=12)).timestamp())
    await write_rows(database_alone, [made], [happened(made, {"success": 1.0})])
    await learn_all(database_alone)
    await compact(database_alone, Directory(tmp_path / "cold"), tenants=[tenant.id])
    await keep(database_alone, days=7, now=now)
    assert (await counts(database_alone, tenant.id)).get("decision", 0) == 0
    async with connected(database_alone) as connection:
        await log_decisions(connection, [made], settling=[made.id])
    await learn_all(database_alone)
    found = await counts(database_alone, tenant.id)
    assert (found["decision"], found["update"], found.get("reward", 0)) == (1, 1, 0)
    assert found.get("work", 0) == 0
    async with connected(database_alone, "worker", tenant.id) as connection:
        learned = await connection.fetchval("SELECT sum(reward_change) FROM update")
    assert learned == 1.0
    assert (await verify(database_alone, row)).holds


async def test_days_that_a_rollout_is_judged_from_stay_until_it_ends(days):
    for day in (0, 1):
        await days.write(day=day)
    await days.compact()
    begun = datetime(days.first.year, days.first.month, days.first.day, tzinfo=UTC)
    async with connected(days.database, "worker", days.tenant.id) as connection:
        await connection.execute(
            "INSERT INTO rollout (tenant, id, skill, point, status, stage, step, share, salt, "
            "candidate, control, control_seq, plan, concurrent, started_at) VALUES ($1, $2, 's', "
            "'p', 'paused', 'ab', 2, 0.5, 's', '0.1.1', '0.1.0', 0, '{}', false, $3)",
            *(days.tenant.id, new_id(), begun + timedelta(days=1, hours=20)),
        )
    kept = await days.keep()
    assert await days.existing() == days.names(1, 2)
    why = f"tenant {days.tenant.id} has an active rollout that needs them"
    assert {kept.waiting[name] for name in days.names(1, 2)} == {why}
    async with connected(days.database, "worker", days.tenant.id) as connection:
        await connection.execute("UPDATE rollout SET status = 'aborted', ended_at = now()")
    await days.keep()
    assert await days.existing() == []


async def test_the_newest_checkpoints_of_each_snapshot_stay(days):
    async with connected(days.database, "worker", days.tenant.id) as connection:
        for snapshot in ("0.1.0", "0.2.0"):
            for seq in (10, 20, 30, 40, 50):
                await connection.execute(
                    "INSERT INTO checkpoint (tenant, skill, point, snapshot, seq, state, sha256) "
                    "VALUES ($1, 's', 'p', $2, $3, '', '')",
                    *(days.tenant.id, snapshot, seq),
                )
    assert (await keep(days.database, days=36_500)).checkpoints == 4
    async with connected(days.database, "app", days.tenant.id) as connection:
        left = await connection.fetch("SELECT snapshot, seq FROM checkpoint ORDER BY 1, 2")
    assert [tuple(row) for row in left] == [
        (snapshot, seq) for snapshot in ("0.1.0", "0.2.0") for seq in (30, 40, 50)
    ]


async def test_what_was_erased_and_came_back_is_erased_again(days):
    row = decision(days.tenant.id, unit="ann")
    async with connected(days.database) as connection:
        await log_decisions(connection, [row])
        await erase(days.database, days.tenant.id, unit="ann", reason="asked to", actor="me")
        await log_decisions(connection, [row])
    await keep(days.database, days=36_500)
    assert (await counts(days.database, days.tenant.id)).get("decision", 0) == 0


@pytest.mark.parametrize(
    "options", [{"days": 0}, {"days": 40_000}, {"idempotency_days": 0}, {"checkpoints": 0}]
)
async def test_numbers_out_of_range_are_refused(database, options):
    with pytest.raises(InputError, match="nothing was dropped"):
        await keep(database, **{"days": 10, **options})
