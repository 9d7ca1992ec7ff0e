"""What stands in for what cannot be had is what the store says is released, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

from steersman.db.derived_snapshots import hold_point
from steersman.db.promotion import pin_point
from steersman.snapshots.retract import retract_version
from steersman.snapshots.verified_bases import VerifiedBases
from tests.learning.shipping_world import promote_point, publish_point, registry_of
from tests.learning.test_retracting import acting
from tests.learning.test_shipping import learned
from tests.learning.world import point_of

AT = datetime(2026, 1, 1, tzinfo=UTC)


async def three_states(database, tenant, tmp_path):
    """Publish three states of one line, each frozen after the one before."""
    registry = registry_of(tmp_path, tenant)
    trusted = tmp_path / "trust" / tenant.name / "root.json"
    trusted.parent.mkdir(parents=True)
    trusted.write_bytes(registry.keys.trusted_root.read_bytes())
    versions = []
    for seed in range(3):
        await learned(database, tenant, 3, seed=seed)
        versions.append((await publish_point(database, tenant.id, registry)).version)
    return versions


async def stands_in(database, tenant, home) -> str:
    verified = VerifiedBases(home)
    try:
        row = await point_of(database, tenant.id)
        async with acting(database, tenant) as connection:
            return (await verified.last_good(connection, row)).snapshot
    finally:
        verified.close()


async def test_what_lies_beyond_a_pin_does_not(database, tenant, tmp_path) -> None:
    frozen = await three_states(database, tenant, tmp_path)
    assert await stands_in(database, tenant, tmp_path) == frozen[2]
    async with acting(database, tenant) as connection:
        point = (tenant.id, "search", "depth")
        await hold_point(connection, point)
        seq = await connection.fetchval(
            "SELECT line_seq FROM snapshot WHERE tenant = $1 AND id = $2", tenant.id, frozen[0]
        )
        await pin_point(connection, point, seq)
    assert await stands_in(database, tenant, tmp_path) == frozen[0]


async def test_what_was_frozen_after_what_was_retracted_does_not(
    database, tenant, tmp_path
) -> None:
    frozen = await three_states(database, tenant, tmp_path)
    await promote_point(database, tenant.id, frozen[1])
    async with acting(database, tenant) as connection:
        given = {"actor": "ann", "reason": "a bot", "now": AT, "take_back": True}
        point = (tenant.id, "search", "depth")
        assert (await retract_version(connection, point, frozen[1], **given)).serves == frozen[0]
    assert await stands_in(database, tenant, tmp_path) == frozen[0]
