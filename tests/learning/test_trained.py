"""Trained policies are signed as candidates."""

import numpy as np
import pytest

from steersman.db.promotion import take_back_snapshot
from steersman.db.snapshots import snapshots_of
from steersman.errors import SigningError, StateError
from steersman.points.policy_factory import initial_policy, load_policy
from steersman.points.state_bytes import unpack_state
from steersman.snapshots.publish import publish
from steersman.snapshots.release_marks import mark_point, read_known, release_version
from tests.learning.shipping_world import (
    WHY,
    promote_point,
    publish_point,
    registry_of,
    snapshot_of,
)
from tests.learning.test_retracting import acting
from tests.learning.world import declared

POINT = ("search", "depth")


def trained(row, best):
    """Return a policy that matches the declaration but comes from elsewhere."""
    policy = initial_policy(row.spec)
    for value in range(5):
        policy.learn(np.full(row.spec.context.dim, float(value) / 10), best, 1.0)
    return policy


def same(policy, state):
    other = load_policy(unpack_state(state)).state()
    return all(np.array_equal(array, other[name]) for name, array in policy.state().items())


class Killed:
    """Publisher that dies before signing."""

    def publish(self, *_, **__):
        raise SigningError("killed")


async def test_what_was_trained_is_a_candidate_until_it_is_promoted(database, tenant, tmp_path):
    row = await declared(database, tenant.id, learning="mode: frozen")
    registry, point = registry_of(tmp_path, tenant), (tenant.id, *POINT)
    frozen = await publish_point(database, tenant.id, registry)
    made = await publish(database, row, registry, WHY, trained=trained(row, "deep"))
    expected = {frozen.version: "released", made.version: "candidate"}
    assert registry.standings(*POINT) == expected
    assert await mark_point(database, point, registry, actor="test") == {}
    async with acting(database, tenant) as connection:
        known = await read_known(connection, point)
    assert known.standing(made.version) == known.standing(made.version, "released") == "candidate"
    with pytest.raises(StateError, match="is a candidate"):
        await release_version(database, point, made.version, registry, actor="test")
    await promote_point(database, tenant.id, made.version)
    assert await mark_point(database, point, registry, actor="test") == {made.version: "released"}
    async with acting(database, tenant) as connection:
        await take_back_snapshot(connection, point, "0.1.0")
    assert await mark_point(database, point, registry, actor="test") == {made.version: "candidate"}


async def test_what_waits_is_signed_and_not_taken_for_what_was_trained(database, tenant, tmp_path):
    row = await declared(database, tenant.id, learning="mode: frozen")
    registry, one, other = (
        registry_of(tmp_path, tenant),
        trained(row, "deep"),
        trained(row, "middle"),
    )
    with pytest.raises(SigningError, match="killed"):
        await publish(database, row, Killed(), WHY, trained=one)
    async with acting(database, tenant) as connection:
        waiting = [it.version for it in await snapshots_of(connection, (tenant.id, *POINT))][1:]
    made = await publish(database, row, registry, WHY, trained=other)
    assert made.version not in waiting
    _, state = await snapshot_of(database, tenant.id, made.version)
    assert same(other, state)
    assert set(registry.standings(*POINT)) == {*waiting, made.version}
    again = await publish(database, row, registry, WHY, trained=one)
    assert [again.version] == waiting
    assert same(one, (await snapshot_of(database, tenant.id, again.version))[1])


async def test_what_waits_and_was_trained_is_not_what_the_line_holds(database, tenant, tmp_path):
    row = await declared(database, tenant.id, learning="mode: frozen")
    policy, registry = trained(row, "deep"), registry_of(tmp_path, tenant)
    with pytest.raises(SigningError, match="killed"):
        await publish(database, row, Killed(), WHY, trained=policy)
    line = await publish_point(database, tenant.id, registry)
    assert same(initial_policy(row.spec), (await snapshot_of(database, tenant.id, line.version))[1])
    assert len(registry.standings(*POINT)) == 2
