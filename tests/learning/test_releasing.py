"""Release marks follow promotions and rollbacks, also after a crash."""

from datetime import UTC, datetime

import pytest

from steersman.db.derived_snapshots import hold_point
from steersman.db.promotion import pin_point, take_back_snapshot
from steersman.db.rollout_transitions import move_rollout, start_rollout
from steersman.errors import MissingSnapshotError, StateError
from steersman.registry.consumer import Consumer
from steersman.snapshots.release_marks import alone, mark_point, release_version
from steersman.snapshots.retract import retract_version
from tests.learning.shipping_world import promote_point, publish_point, registry_of
from tests.learning.test_retracting import acting
from tests.learning.test_shipping import learned, shipping
from tests.learning.world import learn_all, point_of, rows, traffic
from tests.registry.test_consumer import version_of

POINT = ("search", "depth")
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def point(tenant):
    return (tenant.id, *POINT)


@pytest.fixture
def registry(tmp_path, tenant):
    return registry_of(tmp_path, tenant)


@pytest.fixture
def reader(tmp_path, tenant, registry):
    root = registry.keys.trusted_root.read_bytes()
    return Consumer(tmp_path / "registry" / tenant.name, root, tmp_path / "cache", refresh_s=0)


async def audited(database, tenant):
    query = "SELECT detail FROM audit WHERE action = 'snapshot.mark' ORDER BY seq"
    return [one["detail"]["standings"] for one in await rows(database, tenant.id, query)]


async def tried(database, tenant, point, candidate):
    async with acting(database, tenant) as connection:
        control = (await hold_point(connection, point)).snapshot
        return await start_rollout(
            connection,
            point,
            candidate=candidate,
            control=control,
            control_seq=0,
            stage="shadow",
            share=0.0,
            salt="s",
            plan={},
            now=AT,
        )


async def ended(database, tenant, row, status):
    async with acting(database, tenant) as connection:
        await hold_point(connection, (tenant.id, *POINT))
        await move_rollout(connection, row, row.epoch, now=AT, status=status)


async def marked(database, point, registry):
    return await mark_point(database, point, registry, actor="test")


async def base_and_candidate(database, tenant, registry):
    """Publish the live state, and a candidate under another declaration."""
    await learned(database, tenant, 5)
    base = await publish_point(database, tenant.id, registry)
    candidate = await publish_point(database, tenant.id, registry, dim=24)
    assert (base.version, candidate.version) == ("0.1.1", "0.2.1")
    return candidate.version


async def test_a_candidate_is_loaded_when_it_was_promoted(
    database, tenant, point, registry, reader
):
    candidate = await base_and_candidate(database, tenant, registry)
    assert version_of(reader.load(*POINT)) == "0.1.1"
    row = await tried(database, tenant, point, candidate)
    assert await marked(database, point, registry) == {}
    assert version_of(reader.load(*POINT)) == "0.1.1"
    with pytest.raises(
        StateError, match=r"0\.2\.1 is a candidate; only versions that are or were live"
    ):
        await release_version(database, point, candidate, registry, actor="ann")
    await promote_point(database, tenant.id, candidate)
    await ended(database, tenant, row, "promoted")
    assert version_of(reader.load(*POINT)) == "0.1.1"  # nobody has signed it yet
    assert await release_version(database, point, candidate, registry, actor="ann")
    assert not await release_version(database, point, candidate, registry, actor="ann")
    assert version_of(reader.load(*POINT)) == candidate
    assert reader.standings(*POINT) == {"0.2.1": "released", "0.1.1": "released"}
    assert await audited(database, tenant) == [{"0.2.1": "released"}]


async def test_what_was_rolled_back_is_not_loaded(database, tenant, point, registry, reader):
    candidate = await base_and_candidate(database, tenant, registry)
    row = await tried(database, tenant, point, candidate)
    await ended(database, tenant, row, "rolled_back")
    assert await marked(database, point, registry) == {candidate: "rolled_back"}
    assert version_of(reader.load(*POINT, candidates=True)) == "0.1.1"
    assert version_of(reader.load(*POINT, candidate)) == candidate
    again = await tried(database, tenant, point, candidate)
    assert await marked(database, point, registry) == {candidate: "candidate"}
    await ended(database, tenant, again, "aborted")
    assert await marked(database, point, registry) == {}
    with pytest.raises(StateError, match="is a candidate"):
        await release_version(database, point, candidate, registry, actor="ann")


async def test_what_was_promoted_and_taken_back_is_released_no_more(
    database, tenant, point, registry, reader
):
    candidate = await base_and_candidate(database, tenant, registry)
    row = await tried(database, tenant, point, candidate)
    await promote_point(database, tenant.id, candidate)
    await ended(database, tenant, row, "promoted")
    assert await marked(database, point, registry) == {candidate: "released"}
    await traffic(database, await point_of(database, tenant.id), 3, seed=1)
    await learn_all(database)
    later = (await publish_point(database, tenant.id, registry)).version
    assert version_of(reader.load(*POINT)) == later
    async with acting(database, tenant) as connection:
        await take_back_snapshot(connection, point, "0.1.0")
    await ended(database, tenant, row, "rolled_back")
    assert await marked(database, point, registry) == {
        candidate: "rolled_back",
        later: "candidate",
    }
    assert version_of(reader.load(*POINT)) == "0.1.1"


async def test_a_state_of_the_line_that_served_stays_while_it_is_tried(
    database, tenant, point, registry, reader
):
    await learned(database, tenant, 5)
    made = await publish_point(database, tenant.id, registry)
    row = await tried(database, tenant, point, made.version)
    assert await marked(database, point, registry) == {}
    assert version_of(reader.load(*POINT)) == made.version
    await ended(database, tenant, row, "rolled_back")
    assert await marked(database, point, registry) == {made.version: "rolled_back"}
    with pytest.raises(MissingSnapshotError, match="is released"):
        reader.load(*POINT)


async def test_what_is_learned_unserved_is_a_candidate_until_it_serves(
    database, tenant, point, registry, reader
):
    await learned(database, tenant, 5)
    async with acting(database, tenant) as connection:
        await hold_point(connection, point)
        await pin_point(connection, point, 0)
    made = await publish_point(database, tenant.id, registry)
    assert reader.standings(*POINT) == {made.version: "candidate"}
    assert await marked(database, point, registry) == {}
    async with acting(database, tenant) as connection:
        await pin_point(connection, point, None)
    assert await marked(database, point, registry) == {made.version: "released"}


async def test_what_was_frozen_after_what_was_taken_back_is_released_no_more(
    database, tenant, point, registry, reader
):
    versions = []
    for seed in range(3):
        await learned(database, tenant, 3, seed=seed)
        versions.append((await publish_point(database, tenant.id, registry)).version)
    first, bad, later = versions
    await promote_point(database, tenant.id, bad)
    assert await marked(database, point, registry) == {}
    async with acting(database, tenant) as connection:
        given = {"actor": "ann", "reason": "a bot", "now": AT, "take_back": True}
        assert (await retract_version(connection, point, bad, **given)).serves == first
    assert await marked(database, point, registry) == {bad: "candidate", later: "candidate"}
    assert version_of(reader.load(*POINT)) == first


async def test_whoever_ships_marks_what_others_promoted_without_keys(
    database, tenant, point, registry, reader
):
    candidate = await base_and_candidate(database, tenant, registry)
    row = await tried(database, tenant, point, candidate)
    async with shipping(database, {tenant.name: registry}, looks=2) as seen:
        pass
    assert not any(one.marked for one in seen)
    await promote_point(database, tenant.id, candidate)
    await ended(database, tenant, row, "promoted")
    async with shipping(database, {tenant.name: registry}, looks=3) as seen:
        pass
    name = f"search/depth {candidate}"
    assert [one.marked for one in seen[:3]] == [{name: "released"}, {}, {}]
    assert version_of(reader.load(*POINT)) == candidate
    assert await audited(database, tenant) == [{candidate: "released"}]


class Killed(Exception):  # noqa: N818 (no error: it stands for the end of a process)
    """Simulated end of the process."""


class Dying:
    """Registry whose process ends before or after signing a mark."""

    def __init__(self, registry, *, signs):
        self.registry, self.signs = registry, signs

    def standings(self, *given):
        return self.registry.standings(*given)

    def mark(self, *given):
        if self.signs:
            self.registry.mark(*given)
        raise Killed


@pytest.mark.parametrize("signs", [False, True])
async def test_killed_between_promotion_and_mark_the_next_turn_mends_it(
    database, tenant, point, registry, reader, signs
):
    candidate = await base_and_candidate(database, tenant, registry)
    await promote_point(database, tenant.id, candidate)
    with pytest.raises(Killed):
        await marked(database, point, Dying(registry, signs=signs))
    assert version_of(reader.load(*POINT)) == (candidate if signs else "0.1.1")
    async with shipping(database, {tenant.name: registry}, looks=2) as seen:
        pass
    assert [bool(one.marked) for one in seen[:2]] == [not signs, False]
    assert version_of(reader.load(*POINT)) == candidate
    assert await audited(database, tenant) == [{candidate: "released"}]  # once, however often


async def test_a_registry_of_an_earlier_release_is_marked_at_the_first_turn(
    database, tenant, point, registry, reader
):
    candidate = await base_and_candidate(database, tenant, registry)
    chain, tag = registry._writer.read()
    for target in chain.targets.targets.values():
        if target.custom is not None:
            target.custom.pop("standing")
    chain.targets.version += 1
    assert registry._writer._write((chain, tag), chain.targets) is not None
    assert version_of(reader.load(*POINT)) == candidate  # as it was read then
    assert await marked(database, point, registry) == {candidate: "candidate", "0.1.1": "released"}
    assert version_of(reader.load(*POINT)) == "0.1.1"


async def test_what_the_store_does_not_know_is_not_released(database, tenant, point, registry):
    candidate = await base_and_candidate(database, tenant, registry)
    registry.mark(*POINT, {candidate: "released"})  # by somebody with the keys, past the store
    assert await marked(database, point, registry) == {candidate: "candidate"}
    with pytest.raises(StateError, match="is a candidate"):
        await release_version(database, point, candidate, registry, actor="ann")


async def test_what_is_pinned_later_is_released_no_more_whatever_was_signed(
    database, tenant, point, registry
):
    await learned(database, tenant, 5)
    version = (await publish_point(database, tenant.id, registry)).version
    assert registry.standings(*POINT) == {version: "released"}
    for _ in range(2):  # pinned between computing and signing, or signed past the store
        async with acting(database, tenant) as connection:
            await hold_point(connection, point)
            await pin_point(connection, point, 0)
        assert await marked(database, point, registry) == {version: "candidate"}
        assert await marked(database, point, registry) == {}
        registry.mark(*POINT, {version: "released"})
    assert await marked(database, point, registry) == {version: "candidate"}


async def test_what_was_taken_back_is_not_released_by_trying_it_again(
    database, tenant, point, registry
):
    await learned(database, tenant, 5)
    version = (await publish_point(database, tenant.id, registry)).version
    await ended(database, tenant, await tried(database, tenant, point, version), "rolled_back")
    assert await marked(database, point, registry) == {version: "rolled_back"}
    await tried(database, tenant, point, version)
    assert await marked(database, point, registry) == {version: "candidate"}
    registry.mark(*POINT, {version: "released"})
    assert await marked(database, point, registry) == {version: "candidate"}


async def test_whoever_ships_waits_for_nobody_who_publishes(database, tenant, point, registry):
    candidate = await base_and_candidate(database, tenant, registry)
    await promote_point(database, tenant.id, candidate)
    connection = await database.connect("worker")
    try:
        async with alone(connection, point), shipping(database, {tenant.name: registry}) as seen:
            pass
    finally:
        await connection.close()
    assert [(one.marked, one.failed) for one in seen[:1]] == [({}, [])]
    async with shipping(database, {tenant.name: registry}) as seen:
        pass
    assert seen[0].marked == {f"search/depth {candidate}": "released"}
