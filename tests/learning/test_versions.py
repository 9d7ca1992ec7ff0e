"""Comparison of versions by parameters, traffic and value."""

import pytest

from steersman.errors import StateError
from steersman.snapshots.version_difference import compare_versions
from tests.learning.shipping_world import lessons, publish_point
from tests.learning.world import POLICIES, declared, learn_all, traffic


@pytest.mark.parametrize("policy", POLICIES)
async def test_more_data_is_a_patch_that_shifts_traffic(database, tenant, signer, policy):
    row = await declared(database, tenant.id, policy=policy)
    await traffic(database, row, 20)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant))
    point = tenant.id, "search", "depth"
    found = await compare_versions(database, point, "0.1.0", made.version, share=1.0)
    assert found.change == "patch"
    assert found.traffic.rows == 20
    assert found.off_policy.reasons  # twenty rows tell nothing


async def test_a_candidate_is_compared_by_its_own_features(database, tenant, signer):
    row = await declared(database, tenant.id, policy="lin_ts")
    await lessons(database, row, 1500)
    await learn_all(database)
    first = await publish_point(database, tenant.id, signer(tenant))
    second = await publish_point(database, tenant.id, signer(tenant), policy="beta")
    point = tenant.id, "search", "depth"
    found = await compare_versions(database, point, first.version, second.version, share=0.5)
    assert found.change == "major"
    assert found.about["algorithm"].after == "beta_thompson"
    assert abs(found.off_policy.delta) < 0.2
    learned = await compare_versions(database, point, "0.1.0", first.version, share=0.5)
    assert learned.off_policy.low > 0.1
    assert max(shift.after for shift in learned.traffic.shifts) > 0.6


async def test_without_decisions_parameters_are_compared(database, tenant, signer):
    await declared(database, tenant.id)
    made = await publish_point(database, tenant.id, signer(tenant))
    point = tenant.id, "search", "depth"
    found = await compare_versions(database, point, "0.1.0", made.version)
    assert (found.traffic, found.off_policy) == (None, None)
    with pytest.raises(StateError, match=r"0\.9\.0"):
        await compare_versions(database, point, "0.9.0", made.version)
