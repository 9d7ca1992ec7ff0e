"""What people may do: legal actions only, with a reason, audited; and only with what fits."""

import asyncio

import pytest

from steersman.db.audit import history
from steersman.db.declarations import declare
from steersman.db.derived_snapshots import hold_point
from steersman.db.promotion import pin_point, unpin_point
from steersman.errors import ActionNotAllowedError, InputError, RolloutError, SpecError, StateError
from steersman.rollouts.commands import act, close_incident, explain
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from tests.learning.world import learn_all, spoil
from tests.rollouts.world import NoSigner, another, check_history, document, world


def at(stage):
    return lambda row: row.stage == stage or not row.is_under_way


def who(w, reason="a test"):
    return {"actor": "ann", "reason": reason, "clock": w.clock.wall}


async def test_starting_checks_the_candidate_and_what_is_under_way(database, tenant):
    w = await world(database, tenant.id)
    with pytest.raises(StateError, match="no snapshot"):
        await w.start(candidate="9.9.9")
    with pytest.raises(RolloutError, match="was never published"):
        await w.start(candidate="0.1.0")
    with pytest.raises(StateError, match="decision point not found: search/width"):
        await w.start(point="width")
    with pytest.raises(InputError, match="alpha"):
        await w.start(overrides={"alpha": 0.9})
    begun = await w.start(overrides={"alpha": 0.01})
    assert begun.plan["alpha"] == 0.01
    with pytest.raises(RolloutError, match=str(begun.id)):
        await w.start()


async def test_one_rollout_per_skill_unless_they_may_be_concurrent(database, tenant):
    w = await world(database, tenant.id)
    row = await declare(database, tenant.id, document("width"), actor="test")
    made = await publish(database, row, NoSigner(), Reason(actor="test"))
    await w.start()
    with pytest.raises(RolloutError, match="is active"):
        await w.start(point="width", candidate=made.version)
    begun = await w.start(point="width", candidate=made.version, concurrent=True)
    assert begun.concurrent


async def test_a_candidate_for_other_actions_contexts_or_rewards_is_refused(database, tenant):
    w = await world(database, tenant.id)
    for change in (
        ("success: {weight: 1}", "success: {weight: 1}, speed: {weight: 1, missing: 0}"),
        ("window_s: 1.0", "window_s: 2.0"),
    ):
        changed = document().replace(*change)
        assert changed != document()
        await declare(database, tenant.id, changed, actor="test")
        with pytest.raises(RolloutError, match="reward terms"):
            await w.start()
    await declare(database, tenant.id, document(), actor="test")
    assert (await w.start()).status == "running"


async def test_without_a_shadow_the_log_must_be_enough_at_once(database, tenant):
    few = await world(database, tenant.id, log=60)
    canary = {"stages": [{"name": "canary", "share": 0.1, "min_units": 1, "min_s": 1}]}
    with pytest.raises(RolloutError, match="start with a shadow stage, or force it"):
        await few.start(overrides=canary)
    begun = await few.start(overrides=canary, force="a drill")
    assert begun.stage == "canary"
    (row,) = [row for row in await few.read(history) if row.action == "rollout.start"]
    assert row.detail["force"] == "a drill"


async def test_with_enough_of_a_log_no_shadow_is_needed(database, tenant):
    w = await world(database, tenant.id, log=800)
    canary = {"stages": [{"name": "canary", "share": 0.1, "min_units": 1, "min_s": 1}]}
    begun = await w.start(overrides=canary)
    (row,) = [row for row in await w.read(history) if row.action == "rollout.start"]
    assert (begun.stage, row.actor) == ("canary", "test")
    assert row.detail["evidence"]["effective_sample_size"] > 100


async def test_only_what_is_legal_is_done_and_all_of_it_is_audited(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()

    async def do(action, **more):
        return await act(database, tenant.id, begun.id, action, **{**who(w), **more})

    with pytest.raises(InputError, match="reason"):
        await do("pause", reason="  ")
    with pytest.raises(ActionNotAllowedError, match="pause, promote, rollback, freeze"):
        await do("resume")
    assert (await do("pause")).status == "paused"
    with pytest.raises(ActionNotAllowedError, match="resume, rollback, freeze"):
        await do("promote")
    assert (await do("resume")).status == "running"
    with pytest.raises(RolloutError, match="not enough evidence"):
        await do("promote")
    assert (await do("promote", force=True)).stage == "canary"
    frozen = await do("freeze")
    assert (frozen.status, (await w.point()).pinned_seq) == ("paused", frozen.control_seq)
    found = await w.read(lambda it: explain(it, tenant.id, begun.id))
    assert (found.frozen, found.legal) == (True, ("resume", "rollback"))
    await do("resume")
    assert (await w.point()).pinned_seq is None
    await w.arrive(await w.rollout(begun.id), 50)
    ended = await do("rollback", reason="the alert")
    assert (ended.status, ended.reason) == ("rolled_back", "the alert")
    with pytest.raises(ActionNotAllowedError, match="allowed now: freeze"):
        await do("rollback")
    for action in ("freeze", "resume"):  # why it ended is not why somebody looks at it now
        assert (await do(action, reason="a look")).reason == "the alert"
    rows = [row for row in reversed(await w.read(history)) if row.action.startswith("rollout.")]
    assert [row.action.removeprefix("rollout.") for row in rows] == [
        *("start", "pause", "resume", "next_stage", "freeze", "resume", "rolled_back"),
        *("freeze", "resume"),
    ]
    assert [row.actor for row in rows] == ["test", *["ann"] * 8]
    assert rows[3].detail["reason"] == "forced: a test"
    (incident,) = await w.incidents()
    assert (incident.kind, incident.detail["actor"]) == ("manual_rollback", "ann")


def point_of(w):
    return w.tenant, w.row.skill, w.row.point


async def test_a_rollout_keeps_its_point_where_it_is_and_lets_it_go_itself(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    with pytest.raises(RolloutError, match=f"{begun.id} of search/depth .* is active"):
        await w.read(lambda it: unpin_point(it, point_of(w)))
    await act(database, tenant.id, begun.id, "freeze", **who(w))
    pinned = await w.point()
    assert (pinned.pinned_seq, pinned.pinned_by) == (begun.control_seq, begun.id)
    ended = await act(database, tenant.id, begun.id, "rollback", **who(w))
    assert ended.status == "aborted"  # nobody was served
    with pytest.raises(RolloutError, match=f"steersman rollout resume {begun.id}"):
        await w.read(lambda it: unpin_point(it, point_of(w)))
    assert await w.point() == pinned
    assert (await act(database, tenant.id, begun.id, "resume", **who(w))).status == "aborted"
    assert (await w.point()).pinned_seq is None


async def test_resuming_a_rollout_leaves_what_the_drift_guard_pinned_before_it(database, tenant):
    w = await world(database, tenant.id)
    await w.read(lambda it: pin_point(it, point_of(w), 0))
    begun = await w.start()
    assert begun.control_seq == 0
    for action in ("pause", "resume"):
        await act(database, tenant.id, begun.id, action, **who(w))
        assert (await w.point()).pinned_seq == 0
    await act(database, tenant.id, begun.id, "rollback", **who(w))
    assert await w.read(lambda it: unpin_point(it, point_of(w)))


@pytest.mark.parametrize("first", ["unpin", "freeze"])
async def test_who_unpins_and_who_freezes_take_turns(database, tenant, first):
    """Whoever is second sees what the first did: nothing is let go that was just frozen."""
    w = await world(database, tenant.id)
    begun = await w.start()
    await act(database, tenant.id, begun.id, "promote", **who(w), force=True)
    await w.arrive(await w.rollout(begun.id), 50)
    await act(database, tenant.id, begun.id, "rollback", **who(w))
    await w.read(lambda it: pin_point(it, point_of(w), 0))
    if first == "freeze":
        await w.read(lambda it: pin_point(it, point_of(w), None))

    async def unpin():
        await w.read(lambda it: unpin_point(it, point_of(w)))

    async def freeze():
        await act(database, tenant.id, begun.id, "freeze", **who(w))

    holding = await database.connect("worker")
    try:
        async with holding.transaction():
            await hold_point(holding, point_of(w))
            deeds = {"unpin": unpin, "freeze": freeze}
            running = [asyncio.create_task(deeds.pop(first)())]
            await waiting(holding, 1)
            running += [asyncio.create_task(deed()) for deed in deeds.values()]
            await waiting(holding, 2)
        done = await asyncio.gather(*running, return_exceptions=True)
    finally:
        await holding.close()
    point = await w.point()
    assert done[0] is None
    if first == "unpin":
        assert (done[1], point.pinned_by) == (None, begun.id)
    else:
        assert str(begun.id) in str(done[1])
        assert (type(done[1]), point.pinned_by) == (RolloutError, begun.id)


async def waiting(connection, n):
    """Wait until so many wait for an advisory lock of this database."""
    asked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    database = " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    for _ in range(1000):
        if await connection.fetchval(asked + database) == n:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(n)


async def test_what_was_promoted_can_be_taken_back(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    options = {**who(w), "force": True}
    for _ in range(5):
        row = await act(database, tenant.id, begun.id, "promote", **options)
    assert (row.status, (await w.point()).snapshot) == ("promoted", w.candidate)
    await w.arrive(begun, 5)
    back = await act(database, tenant.id, begun.id, "rollback", **who(w, "complaints"))
    assert back.status == "rolled_back"
    assert (await w.point()).snapshot == "0.1.0"
    assert [one.kind for one in await w.incidents()] == ["manual_rollback"]
    with pytest.raises(RolloutError, match="was rolled back"):
        await w.start()


async def test_what_could_never_be_promoted_does_not_start(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    options = {**who(w), "force": True}
    for _ in range(5):
        await act(database, tenant.id, begun.id, "promote", **options)
    await w.arrive(begun, 5)
    await learn_all(database)
    other = await publish(database, await w.point(), NoSigner(), Reason(actor="test"))
    await act(database, tenant.id, begun.id, "rollback", **who(w, "complaints"))
    with pytest.raises(StateError, match="was live before"):
        await w.start(again="the complaints were about something else")
    with pytest.raises(StateError, match=r"comes from lineage 0\.1\.1"):
        await w.start(candidate=other.version)
    await learn_all(database)
    anew = await publish(database, await w.point(), NoSigner(), Reason(actor="test"))
    assert (await w.start(candidate=anew.version)).control == "0.1.0"


async def test_a_promotion_by_hand_needs_the_verdict_of_this_step(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled():
        await w.drive(begun.id, steps=10, until=at("canary"))
        await w.drive(begun.id, steps=1)
    with pytest.raises(RolloutError, match="not_enough_data"):
        await act(database, tenant.id, begun.id, "promote", **who(w))
    await check_history(w, begun.id)


async def test_another_tenants_rollout_is_not_there(database, tenant):
    w, other = await world(database, tenant.id), await another(database, f"{tenant.name}-b")
    begun = await w.start()
    with pytest.raises(RolloutError, match=r"rollout .* not found"):
        await act(database, other.tenant, begun.id, "rollback", **who(w))
    with pytest.raises(RolloutError, match=r"rollout .* not found"):
        await other.read(lambda it: explain(it, other.tenant, begun.id))


async def test_an_incident_is_closed_once_with_a_reason(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    await act(database, tenant.id, begun.id, "promote", **who(w), force=True)
    await w.arrive(await w.rollout(begun.id), 50)
    await act(database, tenant.id, begun.id, "rollback", **who(w))
    (incident,) = await w.incidents()
    with pytest.raises(InputError, match="reason"):
        await close_incident(database, tenant.id, incident.id, **who(w, " "))
    closed = await close_incident(database, tenant.id, incident.id, **who(w, "a typo"))
    w.clock.pass_(9.0)
    again = await close_incident(database, tenant.id, incident.id, **who(w, "again"))
    assert closed.closed_at == again.closed_at
    assert (await w.read(history))[1].detail == {"kind": "manual_rollback", "reason": "a typo"}


async def test_a_candidate_is_stopped_though_the_declaration_cannot_be_read(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    await spoil(database, tenant.id, "document || 'sails: 3\n'")

    async def do(action, **more):
        return await act(database, tenant.id, begun.id, action, **{**who(w), **more})

    assert (await do("pause")).status == "paused"
    assert (await do("resume")).status == "running"
    with pytest.raises(SpecError, match=r"cannot read the declaration.*steersman tenant declare"):
        await do("promote", force=True)
    assert (await do("rollback")).status in {"aborted", "rolled_back"}
