"""Rebuild: the state equals one that never saw the excluded decisions."""

import time
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import numpy as np
import pytest

from steersman.db.archive.compaction import compact
from steersman.db.archive.destination import Directory
from steersman.db.archive.query import query
from steersman.db.conditions import check_condition
from steersman.db.erasure import erase
from steersman.db.retention import keep
from steersman.db.tenants import create_tenant
from steersman.errors import InputError, StateError
from steersman.features import feature_map
from steersman.features.hashed import HashedCategory
from steersman.learning.rebuild import rebuild
from steersman.learning.replica import catch_up, load
from steersman.learning.verify import verify
from steersman.platform.postgres.database import as_tenant
from steersman.points.feature_encoding import encode
from steersman.points.policy_factory import initial_policy
from tests.db.rows import connected
from tests.learning.world import (
    POLICIES,
    bits,
    decided,
    declared,
    happened,
    learn_all,
    point_of,
    replica_of,
    rows,
    write,
)

_DAY_S = 86_400.0


async def mixed_traffic(database, row, start, *, poisoned, n=30):
    """Write decisions in the same order, with and without bad ones between them."""
    rng, poison = np.random.default_rng(5), np.random.default_rng(6)
    decisions, events, bad = [], [], []
    for i in range(n):
        at = start + i * 0.3 * _DAY_S
        decisions.append(decided(row, rng, at=at, unit="person"))
        events.append(happened(decisions[-1], {"success": float(rng.random())}))
        one = decided(row, poison, at=at + 0.25 * _DAY_S, unit="bot")
        if poisoned and i % 3 == 0:
            bad.append(one)
            events.append(happened(one, {"success": 1.0}))
    await write(database, [*decisions, *bad], events)
    return decisions, bad


async def correct(database, decisions):
    events = [
        happened(one, {"success": i / 99}, at=one.at + timedelta(seconds=9))
        for i, one in enumerate(decisions)
    ]
    await write(database, [], events)


@pytest.mark.parametrize("policy", POLICIES)
async def test_excluded_decisions_were_never_learned(database, policy):
    start = time.time() - 20 * _DAY_S
    states = []
    for poisoned in (True, False):
        tenant = await create_tenant(database, f"p-{time.time_ns()}", actor="test")
        row = await declared(database, tenant.id, policy=policy)
        decisions, bad = await mixed_traffic(database, row, start, poisoned=poisoned)
        await learn_all(database)
        await correct(database, [*decisions[::4], *bad[::2]])
        await learn_all(database)
        if poisoned:
            made = await rebuild(database, row, exclude="unit = 'bot'", actor="test")
            assert (made.snapshot, made.kept, made.excluded, made.lost) == ("0.2.0", 38, 15, 0)
        await correct(database, [*decisions[::5], *bad])  # what is excluded stays out
        await learn_all(database)
        replica = await replica_of(database, tenant.id)
        states.append((replica.seq, bits(replica.policy)))
        assert (await verify(database, await point_of(database, tenant.id))).holds
    assert states[0] == states[1]


async def test_erased_decisions_are_taken_back_and_then_were_never_learned(database, tenant):
    row = await declared(database, tenant.id, policy="lin_ucb_forgets")
    start = time.time() - 20 * _DAY_S
    _, bad = await mixed_traffic(database, row, start, poisoned=True)
    await learn_all(database)
    await erase(database, tenant.id, unit="bot", reason="asked to", actor="test")
    await learn_all(database)
    taken = await rows(database, tenant.id, "SELECT decision FROM update WHERE weight_change < 0")
    assert {one["decision"] for one in taken} == {one.id for one in bad}
    made = await rebuild(database, row, actor="test")
    assert (made.kept, made.excluded) == (30, 20)
    other = await create_tenant(database, f"e-{time.time_ns()}", actor="test")
    clean = await declared(database, other.id, policy="lin_ucb_forgets")
    await mixed_traffic(database, clean, start, poisoned=False)
    await learn_all(database)
    rebuilt, never = await replica_of(database, tenant.id), await replica_of(database, other.id)
    assert bits(rebuilt.policy) == bits(never.policy)


async def test_until_leaves_out_what_was_learned_later(database, tenant):
    row = await declared(database, tenant.id, policy="lin_ts")
    start = time.time() - 20 * _DAY_S
    await mixed_traffic(database, row, start, poisoned=False, n=9)
    await learn_all(database)
    before = await replica_of(database, tenant.id)
    (moment,) = (await rows(database, tenant.id, "SELECT clock_timestamp()"))[0]
    await mixed_traffic(database, row, start + 5, poisoned=True, n=9)
    await learn_all(database)
    made = await rebuild(database, row, until=moment, actor="ann")
    assert made.kept == before.seq == 9
    assert bits((await replica_of(database, tenant.id)).policy) == bits(before.policy)
    query = "SELECT actor, detail FROM audit WHERE action = 'learn.rebuild'"
    (act,) = await rows(database, tenant.id, query)
    assert act["actor"] == "ann"
    assert act["detail"]["kept"] == 9


@pytest.mark.parametrize("policy", POLICIES)
async def test_until_a_moment_and_without_some_is_what_others_had_by_then(database, policy):
    start = time.time() - 20 * _DAY_S
    states = []
    for poisoned in (True, False):
        tenant = await create_tenant(database, f"u-{time.time_ns()}", actor="test")
        row = await declared(database, tenant.id, policy=policy)
        decisions, bad = await mixed_traffic(database, row, start, poisoned=poisoned, n=9)
        await learn_all(database)
        if poisoned:
            (moment,) = (await rows(database, tenant.id, "SELECT clock_timestamp()"))[0]
            await correct(database, [*decisions[::2], *bad[::2]])
            await mixed_traffic(database, row, start + 5, poisoned=True, n=9)
            await learn_all(database)
            made = await rebuild(database, row, until=moment, exclude="unit = 'bot'", actor="test")
            assert (made.kept, made.excluded) == (9, len(bad))
        states.append(bits((await replica_of(database, tenant.id)).policy))
    assert states[0] == states[1]


async def test_a_moment_before_all_that_was_learned_is_refused(database, tenant):
    """An hour too early would unlearn everything, and no rebuild could restore it."""
    row = await declared(database, tenant.id, policy="lin_ts")
    await rebuild(database, row, until=datetime.now(UTC), actor="ann")  # there is nothing yet
    row = await point_of(database, tenant.id)
    await mixed_traffic(database, row, time.time() - _DAY_S, poisoned=False, n=9)
    await learn_all(database)
    (first,) = (await rows(database, tenant.id, "SELECT min(at) FROM update"))[0]
    with pytest.raises(InputError, match=r"no updates up to .* give a later time"):
        await rebuild(database, row, until=first - timedelta(hours=1), actor="ann")
    replica = await replica_of(database, tenant.id)
    assert (replica.snapshot, replica.seq) == (row.snapshot, 9)


async def test_a_declaration_that_changed_is_relearned_from_contexts(database, tenant):
    old = await declared(database, tenant.id)
    start = time.time() - 3 * _DAY_S
    decisions, _ = await mixed_traffic(database, old, start, poisoned=False, n=10)
    await learn_all(database)
    new = await declared(database, tenant.id, policy="beta")
    await correct(database, decisions[:3])
    await learn_all(database)
    made = await rebuild(database, new, actor="test")
    assert (made.kept, made.lost) == (13, 0)
    replica = await replica_of(database, tenant.id)
    assert replica.policy.updates == 10  # the corrections are no second reward
    assert (await verify(database, await point_of(database, tenant.id))).not_learned == []


@pytest.mark.parametrize("policy", ["lin_ucb", "beta"])
async def test_contexts_that_another_version_encodes_otherwise(
    database, tenant, policy, monkeypatch
):
    """The point is rejected; the advised command restores everything, late rewards too."""
    row = await declared(database, tenant.id, policy=policy)
    rng = np.random.default_rng(4)
    made = [decided(row, rng) for _ in range(20)]
    events = [happened(one, {"success": i / 20}) for i, one in enumerate(made)]
    await write(database, made, events[:15])
    await learn_all(database)
    before = await replica_of(database, tenant.id)
    monkeypatch.setattr(feature_map, "_CHANGED", {"category": feature_map.LAYOUT_VERSION + 1})
    add = HashedCategory.add
    monkeypatch.setattr(HashedCategory, "add", lambda *a: add(*a[:-1], -a[-1]))
    with pytest.raises(StateError, match=r"declare it again .*, then run `steersman"):
        await replica_of(database, tenant.id)
    again = await declared(database, tenant.id, policy=policy)
    assert again.snapshot == "0.2.0"
    assert again.feature_hash != row.feature_hash
    assert await declared(database, tenant.id, policy=policy) == again
    assert (await replica_of(database, tenant.id)).seq == 0
    relearned = await rebuild(database, again, actor="test")
    assert (relearned.kept, relearned.lost) == (before.seq, 0)
    await write(database, [], events[15:])
    await learn_all(database)
    after = await replica_of(database, tenant.id)
    fresh = initial_policy(row.spec)
    for i, one in enumerate(made):
        x, key = encode(again.spec, after.features, one.context)
        fresh.learn(key if x is None else x, one.action, i / 20, bucket=0)
    assert bits(after.policy) == bits(fresh)
    assert (await verify(database, await point_of(database, tenant.id))).holds


async def test_replicas_and_the_learner_go_on_from_the_new_snapshot(database, tenant):
    row = await declared(database, tenant.id)
    rng = np.random.default_rng(0)
    made = [decided(row, rng) for _ in range(4)]
    await write(database, made, [happened(one, {"success": 1.0}) for one in made[:3]])
    await learn_all(database)
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        replica = await load(connection, row)
    await rebuild(database, row, exclude=f"id = '{made[0].id}'", actor="test")
    await write(database, [], [happened(made[3], {"success": 0.5})])
    await learn_all(database)
    async with as_tenant(connection, tenant.id):
        assert await catch_up(connection, replica) == 3
        assert await catch_up(connection, replica) == 0
    await connection.close()
    assert (replica.snapshot, replica.row.snapshot, replica.seq) == ("0.2.0", "0.2.0", 3)
    assert bits(replica.policy) == bits((await replica_of(database, tenant.id)).policy)


async def bot_of_old(database, tenant, *, bots=30):
    """Write a bot's decisions of ten days ago and a person's of an hour ago; learn both."""
    row = await declared(database, tenant.id)
    now = time.time()
    bot, person = np.random.default_rng(6), np.random.default_rng(5)
    old = [decided(row, bot, at=now - 10 * _DAY_S + i, unit="bot-7") for i in range(bots)]
    new = [decided(row, person, at=now - 3600 + i, unit="person") for i in range(10)]
    made = [*old, *new]
    await write(database, made, [happened(one, {"success": 1.0}) for one in made])
    await learn_all(database)
    return row, old


async def let_go(database, tenant, decisions):
    """Delete hot rows, as retention does."""
    async with connected(database, "owner", tenant.id) as connection:
        ids = [one.id for one in decisions]
        await connection.execute("DELETE FROM event WHERE decision = ANY($1)", ids)
        await connection.execute("DELETE FROM reward WHERE decision = ANY($1)", ids)
        await connection.execute("DELETE FROM decision WHERE id = ANY($1)", ids)


async def test_poison_that_retention_dropped_is_told_and_left_out_by_id(database_alone, tmp_path):
    database, cold = database_alone, Directory(tmp_path)
    tenant = await create_tenant(database, "old", actor="test")
    row, old = await bot_of_old(database, tenant)
    await compact(database, cold)
    await keep(database, days=7)
    with pytest.raises(InputError, match="cannot check 30 updates") as told:
        await rebuild(database, row, exclude="unit = 'bot-7'", actor="test")
    assert f"{old[-1].at:%Y-%m-%d %H:%M}" in str(told.value)
    assert len(await rows(database, tenant.id, "SELECT FROM snapshot")) == 1
    found = await query(database, cold, tenant.id, "SELECT id FROM decision WHERE unit = 'bot-7'")
    ids = [UUID(str(one["id"])) for one in found.to_pylist()]
    assert sorted(ids) == [one.id for one in old]
    made = await rebuild(database, row, exclude="unit = 'bot-7'", decisions=ids, actor="test")
    assert (made.kept, made.excluded, made.lost, made.unseen) == (10, 30, 0, 0)
    other = await create_tenant(database, "never", actor="test")
    await bot_of_old(database, other, bots=0)
    rebuilt, never = await replica_of(database, tenant.id), await replica_of(database, other.id)
    assert bits(rebuilt.policy) == bits(never.policy)
    (act,) = await rows(
        database, tenant.id, "SELECT detail FROM audit WHERE action = 'learn.rebuild'"
    )
    assert (act["detail"]["unseen"], act["detail"]["named"]) == (0, 30)
    again = await rebuild(database, row, exclude="unit = 'bot-7'", actor="test")
    assert (again.kept, again.unseen) == (10, 0)  # what is excluded stays out: nothing to judge


async def test_what_a_condition_cannot_see_is_kept_where_that_is_said(database, tenant):
    row, old = await bot_of_old(database, tenant)
    await let_go(database, tenant, old[:20])
    with pytest.raises(InputError, match=r"cannot check 20 updates.*--keep-unseen"):
        await rebuild(database, row, exclude="unit = 'bot-7'", actor="test")
    made = await rebuild(
        database, row, exclude="unit = 'bot-7'", decisions=[old[0].id], keep_unseen=True, actor="t"
    )
    assert (made.kept, made.excluded, made.unseen) == (29, 11, 19)


async def test_what_is_left_out_anyway_needs_no_seeing(database, tenant):
    row, old = await bot_of_old(database, tenant)
    (start,) = (await rows(database, tenant.id, "SELECT min(at) FROM update"))[0]
    await erase(database, tenant.id, decisions=[old[0].id], reason="asked to", actor="test")
    await learn_all(database)
    await let_go(database, tenant, old)
    before = start - timedelta(seconds=1)
    made = await rebuild(database, row, exclude="true", until=before, actor="test")
    assert (made.kept, made.unseen) == (0, 0)
    made = await rebuild(database, row, actor="test")
    assert (made.kept, made.unseen) == (0, 0)


async def test_erased_decisions_need_no_seeing(database, tenant):
    row, old = await bot_of_old(database, tenant)
    ids = [one.id for one in old]
    await erase(database, tenant.id, decisions=ids, reason="asked to", actor="test")
    await learn_all(database)
    made = await rebuild(database, row, exclude="unit = 'bot-7'", actor="test")
    assert (made.kept, made.excluded, made.unseen) == (10, 60, 0)


async def test_ids_of_others_are_refused(database, tenant):
    row, old = await bot_of_old(database, tenant, bots=1)
    strange = uuid4()
    with pytest.raises(InputError, match=rf"1 id\(s\) are not decisions.*{strange}"):
        await rebuild(database, row, decisions=[old[0].id, strange], actor="test")
    assert len(await rows(database, tenant.id, "SELECT FROM snapshot")) == 1


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "true) OR (true",
        "true; DROP TABLE decision",
        "id IN (SELECT decision FROM erasure)",
        "set_config('app.tenant', '00000000-0000-0000-0000-000000000000', true) IS NULL",
        "pg_sleep(100) IS NULL",
        "true -- and nothing else",
        "true /* or */",
        "unit = $1",
        "unit = E'\\x41'",
        'unit = "set_config"(unit)',
        "unit = U&'\\0041'",
        "(unit = 'a'",
        "unit = 'a' \x00",
        "unit = '\udcff'",
        "steersman.first_id('2026-01-01') = id",
        "x" * 2001,
    ],
)
def test_conditions_that_are_more_than_an_expression_are_refused(condition):
    with pytest.raises(InputError):
        check_condition(condition)


@pytest.mark.parametrize(
    "condition",
    [
        "unit = 'bot-7' AND at > '2026-11-01'",
        "context->>'intent' = 'it''s spam; --' or p < 0.05",
        "lower(action) IN ('deep', 'middle') AND NOT degraded",
        "eligible @> ARRAY['deep'] AND cardinality(distribution) = 3",
        "(context->>'length')::float8 BETWEEN -1e3 AND 2.5",
    ],
)
async def test_conditions_that_work(database, tenant, condition):
    row = await declared(database, tenant.id)
    assert (await rebuild(database, row, exclude=condition, actor="test")).kept == 0


async def test_conditions_that_do_not_work_say_why(database, tenant):
    row = await declared(database, tenant.id)
    for condition, why in [
        ("colour = 'red'", "colour"),
        ("unit > 3", "operator"),
        ("1", "boolean"),
    ]:
        with pytest.raises(InputError, match=why):
            await rebuild(database, row, exclude=condition, actor="test")
    assert len(await rows(database, tenant.id, "SELECT FROM snapshot")) == 1
