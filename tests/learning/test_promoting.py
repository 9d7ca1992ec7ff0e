"""Promotion: the new snapshot continues exactly from the live lineage."""

import asyncio
import time
from datetime import timedelta
from threading import Event, Semaphore

import numpy as np
import pytest

from steersman.db.decisions import log_decisions
from steersman.db.erasure import erase
from steersman.db.packed_events import log_events
from steersman.db.promotion import take_back_snapshot
from steersman.db.tenants import create_tenant
from steersman.errors import StateError
from steersman.learning.rebuild import rebuild
from steersman.learning.relearn import Relearner
from steersman.learning.verify import verify
from steersman.platform.postgres.database import as_tenant
from steersman.snapshots.promote import promote
from tests.learning.shipping_world import lessons, promote_point, publish_point
from tests.learning.world import (
    POLICIES,
    bits,
    corrections,
    decided,
    declared,
    happened,
    learn_all,
    point_of,
    replica_of,
    rows,
    traffic,
    write,
)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_promoted_state_goes_on_as_the_line_does(database, tmp_path, signer, policy):
    states = []
    for promoted in (True, False):
        tenant = await create_tenant(database, f"g-{time.time_ns()}", actor="test")
        row = await declared(database, tenant.id, policy=policy)
        first = await traffic(database, row, 20)
        await learn_all(database)
        if promoted:
            made = await publish_point(database, tenant.id, signer(tenant))
            assert (made.version, made.line, made.line_seq) == ("0.1.1", "0.1.0", 20)
        second = await traffic(database, row, 10, seed=1)
        await corrections(database, first)
        await learn_all(database)
        if promoted:
            done = await promote_point(database, tenant.id, "0.1.1")
            assert (done.before, done.snapshot, done.lost) == ("0.1.0", "0.1.1", 0)
            assert done.seq == 13
            assert (await point_of(database, tenant.id)).snapshot == "0.1.1"
        await corrections(database, [*first[3:], *second])
        await learn_all(database)
        assert (await verify(database, await point_of(database, tenant.id))).holds
        states.append(bits((await replica_of(database, tenant.id)).policy))
    assert states[0] == states[1]


@pytest.mark.parametrize("candidate", [{"policy": "lin_ts"}, {"dim": 16}, {"policy": "beta"}])
async def test_a_promoted_candidate_has_learned_all_of_the_log(database, signer, candidate):
    states = []
    for promoted in (True, False):
        tenant = await create_tenant(database, f"c-{time.time_ns()}", actor="test")
        row = await declared(database, tenant.id)
        first = await traffic(database, row, 20)
        await learn_all(database)
        if promoted:
            made = await publish_point(database, tenant.id, signer(tenant), **candidate)
        await traffic(database, row, 10, seed=1)
        await corrections(database, first)
        await learn_all(database)
        if promoted:
            done = await promote_point(database, tenant.id, made.version)
            assert (done.seq, done.lost) == (13, 0)
        else:
            new = await declared(database, tenant.id, **candidate)
            await rebuild(database, new, actor="test")
        await corrections(database, first[3:])
        await learn_all(database)
        assert (await verify(database, await point_of(database, tenant.id))).holds
        states.append(bits((await replica_of(database, tenant.id)).policy))
    assert states[0] == states[1]


@pytest.mark.parametrize("candidate", [{}, {"dim": 16}, {"policy": "beta"}])
async def test_what_an_earlier_promotion_copied_is_learned_once(database, signer, candidate):
    """Frozen from the common lineage, later than the version promoted first."""
    states = []
    for promoted in (True, False):
        tenant = await create_tenant(database, f"o-{time.time_ns()}", actor="test")
        row = await declared(database, tenant.id)
        first = await traffic(database, row, 20)
        await learn_all(database)
        if promoted:
            earlier = await publish_point(database, tenant.id, signer(tenant))
        for step in (1, 2):
            await earn(database, first[:6], step)
        if promoted:
            later = await publish_point(database, tenant.id, signer(tenant), **candidate)
            await promote_point(database, tenant.id, earlier.version)
        await earn(database, first[3:9], 3)
        if promoted:
            done = await promote_point(database, tenant.id, later.version)
            assert (done.seq, done.lost) == (6, 0)
        elif candidate:
            new = await declared(database, tenant.id, **candidate)
            await rebuild(database, new, actor="test")
        found = await verify(database, await point_of(database, tenant.id))
        assert (found.holds, found.not_learned) == (True, [])
        states.append(bits((await replica_of(database, tenant.id)).policy))
    assert states[0] == states[1]


async def test_a_version_is_published_anew_where_what_came_since_cannot_be_told(
    database, tenant, signer
):
    row = await declared(database, tenant.id)
    first = await traffic(database, row, 20)
    await learn_all(database)
    versions = []
    for step in range(3):
        versions.append((await publish_point(database, tenant.id, signer(tenant))).version)
        await earn(database, first[step : step + 6], step)
    await promote_point(database, tenant.id, versions[0])
    ids = [first[1].id]
    await erase(database, tenant.id, decisions=ids, reason="asked to", actor="test")
    await learn_all(database)
    await promote_point(database, tenant.id, versions[1])
    with pytest.raises(StateError, match="dropped some of those updates"):
        await promote_point(database, tenant.id, versions[2])
    await promote_point(
        database, tenant.id, (await publish_point(database, tenant.id, signer(tenant))).version
    )
    assert (await verify(database, await point_of(database, tenant.id))).not_learned == []


@pytest.mark.slow
async def test_deciding_and_reporting_go_on_while_a_candidate_relearns(
    database, tenant, signer, monkeypatch
):
    row = await declared(database, tenant.id, dim=64)
    await lessons(database, row, 50)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant), dim=128)
    await lessons(database, row, 400, seed=1)
    await learn_all(database)
    relearning, visits, rng = Event(), Semaphore(0), np.random.default_rng(0)
    relearned, kept_going = Relearner._relearned, []

    def slowly(*given):
        """Relearn for as long as ten visits take, as with a long log."""
        relearning.set()
        kept_going.extend(visits.acquire(timeout=20) for _ in range(10))
        return relearned(*given)

    async def visit():
        """Decide and report in the same process, as a service during a promotion."""
        connection = await database.connect("app")
        while not done.done():
            one = decided(row, rng)
            await log_decisions(connection, [one])
            await log_events(connection, [happened(one, {"success": 1.0})])
            if relearning.is_set():
                visits.release()
        await connection.close()

    monkeypatch.setattr(Relearner, "_relearned", slowly)
    done = asyncio.create_task(promote_point(database, tenant.id, made.version))
    await visit()
    promoted = await done
    assert (promoted.seq, promoted.lost) == (400, 0)
    assert kept_going == [True] * len(kept_going) != []
    await learn_all(database)
    found = await verify(database, await point_of(database, tenant.id))
    assert (found.holds, found.not_learned) == (True, [])


@pytest.mark.slow
async def test_a_controllers_patience_does_not_end_a_long_promotion(database, tenant, signer):
    row = await declared(database, tenant.id, dim=64)
    await lessons(database, row, 50)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant), dim=128)
    await lessons(database, row, 3000, seed=1)
    await learn_all(database)
    connection = await database.connect("worker")
    if connection.get_server_version().major < 17:
        pytest.skip("this server ends no transaction for its length")
    await connection.execute("SET transaction_timeout = 100")  # a controller's is a minute
    begun = time.perf_counter()
    async with as_tenant(connection, tenant.id):
        point = row.tenant, row.skill, row.point
        await promote(connection, point, made.version, actor="test", reason="shown to be better")
    assert time.perf_counter() - begun > 0.1
    await connection.close()
    assert (await point_of(database, tenant.id)).snapshot == made.version


async def earn(database, decisions, step):
    """Correct the rewards of decisions and learn the corrections."""
    rng = np.random.default_rng(step)
    moment = timedelta(seconds=2 + step)
    events = [
        happened(one, {"success": float(rng.random())}, at=one.at + moment) for one in decisions
    ]
    await write(database, [], events)
    await learn_all(database)


async def test_what_was_erased_after_freezing_is_taken_out_of_a_candidate(database, tenant, signer):
    row = await declared(database, tenant.id)
    first = await traffic(database, row, 20)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant), policy="beta")
    await write(
        database, [], [happened(first[1], {"success": 0.9}, at=first[1].at + timedelta(seconds=5))]
    )
    await learn_all(database)
    ids = [one.id for one in first[:3]]
    await erase(database, tenant.id, decisions=ids, reason="asked to", actor="test")
    await learn_all(database)
    await promote_point(database, tenant.id, made.version)
    policy = (await replica_of(database, tenant.id)).policy
    assert policy.updates == 17
    assert (await verify(database, await point_of(database, tenant.id))).holds


async def test_what_is_erased_after_a_promotion_is_taken_back_once(database, tenant, signer):
    row = await declared(database, tenant.id)
    first = await traffic(database, row, 20)
    await learn_all(database)
    await publish_point(database, tenant.id, signer(tenant))
    await promote_point(database, tenant.id, "0.1.1")
    ids = [one.id for one in first[:3]]
    await erase(database, tenant.id, decisions=ids, reason="asked to", actor="test")
    await learn_all(database)
    replica = await replica_of(database, tenant.id)
    assert (replica.snapshot, replica.seq) == ("0.1.1", 3)
    assert replica.policy.updates == 17


async def test_a_point_that_was_promoted_can_be_rebuilt(database, tenant, signer):
    row = await declared(database, tenant.id)
    first = await traffic(database, row, 20)
    await learn_all(database)
    await publish_point(database, tenant.id, signer(tenant))
    await promote_point(database, tenant.id, "0.1.1")
    await corrections(database, first)
    await learn_all(database)
    before = bits((await replica_of(database, tenant.id)).policy)
    made = await rebuild(database, await point_of(database, tenant.id), actor="test")
    assert (made.kept, made.excluded, made.lost) == (23, 0, 0)
    assert bits((await replica_of(database, tenant.id)).policy) == before


async def test_what_may_not_serve_is_refused(database, tenant, signer):
    row = await declared(database, tenant.id)
    await traffic(database, row, 20)
    await learn_all(database)
    first = await publish_point(database, tenant.id, signer(tenant))
    with pytest.raises(StateError, match=r"0\.9\.9"):
        await promote_point(database, tenant.id, "0.9.9")
    await promote_point(database, tenant.id, first.version)
    with pytest.raises(StateError, match="is already live"):
        await promote_point(database, tenant.id, first.version)
    await rebuild(database, await point_of(database, tenant.id), actor="test")
    await traffic(database, row, 5, seed=2)
    await learn_all(database)
    with pytest.raises(StateError, match="publish again"):
        await promote_point(database, tenant.id, first.version)


async def test_what_served_before_and_learned_further_is_not_promoted_again(
    database, tenant, signer
):
    row = await declared(database, tenant.id)
    await traffic(database, row, 20)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant))
    await promote_point(database, tenant.id, made.version)
    await traffic(database, row, 5, seed=2)
    await learn_all(database)
    with pytest.raises(StateError, match="is already live"):
        await promote_point(database, tenant.id, made.version)
    connection = await database.connect("worker")
    async with as_tenant(connection, tenant.id):
        await take_back_snapshot(connection, (row.tenant, row.skill, row.point), "0.1.0")
    await connection.close()
    with pytest.raises(StateError, match="under a new version"):
        await promote_point(database, tenant.id, made.version)


async def test_a_promotion_is_audited(database, tenant, signer):
    row = await declared(database, tenant.id)
    await traffic(database, row, 4)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant))
    await promote_point(database, tenant.id, made.version)
    query = "SELECT action, detail FROM audit WHERE action LIKE 'snapshot.%' ORDER BY seq"
    published, promoted = await rows(database, tenant.id, query)
    assert published["detail"]["version"] == promoted["detail"]["snapshot"] == "0.1.1"
    assert promoted["detail"]["reason"] == "shown to be better"


async def test_a_reward_that_sums_leave_by_a_digit_is_taken_back(database, tenant, signer):
    row = await declared(database, tenant.id, policy="beta")
    both = [decided(row, np.random.default_rng(0)) for _ in range(2)]
    await write(database, both)
    earned = (0.3, 0.4, 0.1, 0.0)
    assert 0.3 + (0.4 - 0.3) + (0.1 - 0.4) + (0.0 - 0.1) < 0.0
    for after, value in enumerate(earned):
        moment = timedelta(seconds=after + 1)
        events = [happened(one, {"success": value}, at=one.at + moment) for one in both]
        await write(database, [], events)
        await learn_all(database)
    await publish_point(database, tenant.id, signer(tenant))
    await promote_point(database, tenant.id, "0.1.1")
    later = both[0].at + timedelta(seconds=9)
    await write(database, [], [happened(both[0], action_taken="something else", at=later)])
    await learn_all(database)
    made = await rebuild(database, await point_of(database, tenant.id), actor="test")
    assert made.lost == 0
    assert (await verify(database, await point_of(database, tenant.id))).not_learned == []
    await erase(database, tenant.id, decisions=[both[1].id], reason="asked to", actor="test")
    await learn_all(database)
    assert (await replica_of(database, tenant.id)).policy.updates == 0
