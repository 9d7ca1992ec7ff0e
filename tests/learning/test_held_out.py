"""Held-out comparison detects a worse state and excludes learned decisions."""

import time
from datetime import timedelta

import numpy as np
import pytest

from steersman.db.decisions import log_decisions
from steersman.db.held_out import hold_out
from steersman.db.packed_events import log_events
from steersman.db.rewards import learned_of
from steersman.db.updates import updates_after
from steersman.learning.held_out import ComparedState, compare, forget
from steersman.learning.replica import apply_update
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import initial_policy, load_policy
from tests.learning.shipping_world import lessons
from tests.learning.world import decided, declared, happened, learn_all, replica_of


async def compared(database, row, new, old, **options):
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            point = row.tenant, row.skill, row.point
            return await compare(connection, point, new, old, **options)
    finally:
        await connection.close()


async def chosen(database, row, **options):
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            point = row.tenant, row.skill, row.point
            rows = await hold_out(connection, point, **options)
            return rows, await learned_of(connection, point, row.snapshot, [one.id for one in rows])
    finally:
        await connection.close()


async def test_a_learned_state_is_better_than_none_and_none_is_worse(database, tenant):
    row = await declared(database, tenant.id, policy="lin_ts")
    await lessons(database, row, 1000)
    await learn_all(database)
    replica = await replica_of(database, tenant.id)

    def learned():
        return ComparedState(row.spec, load_policy(replica.policy.state()), "0.1.0", replica.seq)

    def fresh():
        return ComparedState(row.spec, initial_policy(row.spec), "0.1.0", 0)

    better = await compared(database, row, learned(), fresh(), share=0.5)
    assert better.low > 0.1
    assert not better.is_worse
    assert 400 < better.decisions < 600
    worse = await compared(database, row, fresh(), learned(), share=0.5)
    assert worse.is_worse
    assert worse.difference == pytest.approx(-better.difference)
    few = await compared(database, row, fresh(), learned(), share=0.05)
    assert few.difference is None
    assert "Too little overlap" in few.reasons[0]


@pytest.mark.parametrize("policy", ["lin_ucb", "lin_ucb_forgets", "kernel", "beta", "squarecb"])
async def test_what_is_held_out_is_taken_out_of_the_state(database, tenant, policy):
    row = await declared(database, tenant.id, policy=policy)
    made = await lessons(database, row, 60)
    await learn_all(database)
    held, learned = await chosen(database, row, share=0.4, newest=50)
    assert {one.id for one in held} < {one.id for one in made[10:]}
    assert len(learned) == len(held) > 5
    copy = load_policy((await replica_of(database, tenant.id)).policy.state())
    forget(copy, learned.values())
    other = await fresh_without(database, row, {one.id for one in held})
    for name, array in copy.state().items():
        if name != "meta":
            assert np.allclose(array, other[name], atol=1e-9), name


async def fresh_without(database, row, ids):
    policy = initial_policy(row.spec)
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            point = row.tenant, row.skill, row.point
            for update in await updates_after(connection, point, row.snapshot, 0):
                if update.decision not in ids:
                    apply_update(policy, update)
    finally:
        await connection.close()
    return policy.state()


async def test_units_are_held_out_as_a_whole_and_always_the_same(database, tenant):
    row = await declared(database, tenant.id)
    made = await lessons(database, row, 100, units=20)
    await learn_all(database)
    held, _ = await chosen(database, row, share=0.3, newest=100)
    units = {one.unit for one in held}
    assert 0 < len(units) < 20
    assert len(held) == 5 * len(units)
    assert [one.id for one in held] == sorted(one.id for one in made if one.unit in units)
    again, _ = await chosen(database, row, share=0.3, newest=100)
    assert again == held


async def test_open_windows_and_decisions_without_reward_are_not_judged(database, tenant):
    row = await declared(database, tenant.id)
    rng = np.random.default_rng(0)
    now = time.time()
    made = [decided(row, rng, at=now - 10), decided(row, rng, at=now - 9000)]
    late = decided(row, rng, at=now - 9100)
    connection = await database.connect("app")
    await log_decisions(connection, [*made, late])
    await log_events(connection, [happened(one, {"success": 1.0}) for one in made])
    await connection.close()
    await learn_all(database)
    held, _ = await chosen(database, row, share=1.0, newest=100)
    assert [one.id for one in held] == [made[1].id]
    assert late.window_ends - late.at == timedelta(seconds=600)


async def test_an_action_that_the_log_never_drew_tells_nothing(database, tenant):
    row = await declared(database, tenant.id, policy="lin_ts")
    await lessons(database, row, 1000)
    await learn_all(database)
    known = ComparedState(row.spec, initial_policy(row.spec), "0.1.0", 0)
    actions = row.spec.actions
    more = actions.model_copy(update={"names": (*actions.names, "new")})
    wider = row.spec.model_copy(update={"actions": more})
    found = await compared(
        database, row, ComparedState(wider, initial_policy(wider), "0.1.0", 0), known, share=0.5
    )
    assert found.difference is None
    assert any("could not have drawn" in reason for reason in found.reasons)
