"""The canary: a rollout goes on when hard gates held in so many batches, and is taken back else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from steersman.db.packed_events import log_events
from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.plan import plan_of
from steersman.spec.loader import load
from steersman_systems.configs import shipped
from steersman_systems.rag_tuner.canary import Gates, GateSource, canary_plan
from steersman_systems.rag_tuner.policy_config import load_policy_config
from tests.learning.world import event
from tests.rollouts.world import another, check_history, world

TUNED = load_policy_config()
GOOD = {"faithfulness": 0.9, "relevancy": 0.9, "latency_ms": 100.0}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, DAY = 3600.0, 86_400.0


def told(count, **changes):
    """Return decisions one second apart, the last one now."""
    return [(NOW - timedelta(seconds=count - n), {**GOOD, **changes}) for n in range(1, count + 1)]


def judged(decisions, before=0, **options):
    source = GateSource(TUNED, "rag", "retrieval", **{"queries": 20, "batches": 3, **options})
    return source.judged(decisions, (HOUR, DAY), NOW, before=before)


def test_gates_must_hold_in_so_many_batches_one_after_the_other():
    assert judged(told(60)).alive
    few = judged(told(59))
    assert not few.alive
    assert few.reason == "hard gates held in 2 of 3 batches of 20 decisions"
    assert judged([]).reason == "hard gates held in 0 of 3 batches of 20 decisions"


def test_where_a_batch_begins_does_not_move_with_every_look():
    """Of decisions of which every tenth batch's worth is bad, no cut finds three good batches."""
    decisions = told(120)
    for place in range(10, 120, 20):  # one bad stretch of two in each batch of twenty
        for _, one in decisions[place : place + 6]:
            one["faithfulness"] = 0.0
    assert not any(judged(decisions[:count]).alive for count in range(121))
    late = judged(told(79))
    assert (late.alive, late.candidate[0].total) == (True, 60.0)  # nineteen wait for their batch
    # Those that are not told any more still say where a batch begins.
    assert judged(decisions[33:], before=33).reason == judged(decisions).reason
    assert judged(decisions[40:], before=40).candidate[0].total == 80.0
    assert judged(decisions[33:], before=33).candidate[0].total == 80.0


@pytest.mark.parametrize(
    ("changes", "gate"),
    [
        ({"faithfulness": 0.7}, "faithfulness"),
        ({"relevancy": 0.7}, "relevancy"),
        ({"latency_ms": 600.0}, "p95_latency_ms"),
        ({"error": 1.0}, "error_rate"),
    ],
)
def test_a_batch_that_breaks_a_gate_is_told_and_counted(changes, gate):
    decisions = told(100)
    decisions[60:80] = [(at, {**one, **changes}) for at, one in decisions[60:80]]
    found = judged(decisions)
    assert not found.alive
    assert found.reason.startswith("hard gates held in 1 of 3 batches of 20 decisions; ")
    assert gate in found.reason
    assert [(count.bad, count.total) for count in found.candidate] == [(20.0, 100.0)] * 2
    # Once three more have held, it is no reason any more; the budget remembers it.
    healed = judged([*decisions, *told(40)])
    assert healed.alive
    assert healed.candidate[0].bad == 20.0


@pytest.mark.parametrize("name", ["faithfulness", "relevancy", "latency_ms"])
def test_what_is_not_reported_is_not_known_to_hold(name):
    decisions = [(at, {k: v for k, v in one.items() if k != name}) for at, one in told(60)]
    assert not judged(decisions).alive


def test_too_few_that_are_known_hold_no_gate_and_break_none():
    """99 of 100 without faithfulness, and the last one is fine."""
    decisions = told(60)
    for place, (_, one) in enumerate(decisions):
        if place % 20:
            one.pop("faithfulness")
    found = judged(decisions)
    assert not found.alive
    assert "faithfulness of less than 90% is known" in found.reason
    assert [count.bad for count in found.candidate] == [0.0, 0.0]
    assert judged(decisions, coverage=0.05).alive
    # What is known is enough to see it broken, however good the rest may be.
    for _, one in decisions[:15]:
        one["faithfulness"] = 0.0
    assert judged(decisions[:20], batches=1).candidate[0].bad == 20.0
    with pytest.raises(InputError, match="coverage is 0"):
        GateSource(TUNED, "rag", "retrieval", coverage=0)


def test_the_plan_asks_for_an_interval_above_zero():
    point = load(shipped("rag/retrieval.yaml"))
    plan = plan_of(point, salt="s", overrides=canary_plan(TUNED))
    assert (plan.alpha, plan.canary_margin, plan.objective) == (0.025, 0.0, "superior")
    assert plan.budget.objective == pytest.approx(0.99)
    names = " ".join(guardrail.name for guardrail in plan.guardrails)
    assert all(name in names for name in ("reward", "faithfulness", "relevancy", "latency_ms"))
    for wrong in (100.5, 100.0):
        with pytest.raises(InputError, match="whole numbers, 10 or more"):
            GateSource(TUNED, "rag", "retrieval", queries=wrong)
    with pytest.raises(InputError, match="queries 9, batches 3"):
        GateSource(TUNED, "rag", "retrieval", queries=9)


OVERRIDES = {
    **canary_plan(TUNED),
    "error_budget": {"objective": 0.9, "period_s": 7200, "min_errors": 5},
}


def gates(w, **options):
    return [GateSource(TUNED, w.row.skill, w.row.point, **{"queries": 20, **options})]


def at(stage):
    return lambda row: row.stage == stage or not row.is_under_way


@pytest.mark.slow
async def test_a_tuned_policy_that_holds_its_gates_leaves_the_canary(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start(overrides=OVERRIDES)
    async with w.controlled(sources=gates(w)):
        ended = await w.drive(
            begun.id, steps=30, until=at("ab"), candidate=0.9, control=0.4, outcomes=lambda _: GOOD
        )
    rows = await check_history(w, begun.id)
    assert ended.stage == "ab", rows[-1].reasons
    waited = [r for row in rows if row.stage == "canary" for r in row.reasons]
    assert any("hard gates held in" in reason for reason in waited)


@pytest.mark.slow
async def test_a_better_reward_does_not_help_what_breaks_a_gate(database, tenant):
    """Its reward is far better; its latency is not allowed."""
    w = await world(database, tenant.id)
    begun = await w.start(overrides=OVERRIDES)
    slow = {**GOOD, "latency_ms": 900.0}

    def outcomes(arm):
        return slow if arm == "candidate" else GOOD

    async with w.controlled(sources=gates(w)):
        ended = await w.drive(begun.id, steps=30, candidate=0.95, control=0.3, outcomes=outcomes)
    rows = await check_history(w, begun.id)
    assert (ended.status, ended.stage) == ("rolled_back", "canary"), rows[-1].reasons
    assert (await w.point()).snapshot == w.row.snapshot


async def test_other_points_and_other_tenants_are_let_alone(database, tenant):
    w = await world(database, tenant.id, log=60)
    other = await another(database, f"{tenant.name}-b", log=60)
    begun, theirs = [await one.start(overrides=OVERRIDES) for one in (w, other)]
    (mine,) = gates(w, batches=1)
    connection = await database.connect("worker")
    try:
        now = datetime.fromtimestamp(w.clock.now, UTC) + timedelta(hours=1)
        shadow = await mine.read(connection, begun, (DAY,), now)
        assert (shadow.alive, shadow.candidate) == (True, ())
        canaries = [replace(one, stage="canary", share=0.5) for one in (begun, theirs)]
        await w.arrive(canaries[0], 100, outcomes=lambda _: GOOD)
        own, foreign = [await mine.read(connection, one, (DAY,), now) for one in canaries]
        assert own.alive
        assert own.candidate[0].total >= 20
        assert (foreign.alive, foreign.candidate[0].total) == (False, 0.0)
        elsewhere = GateSource(TUNED, "rag", "retrieval", queries=20)
        assert (await elsewhere.read(connection, canaries[1], (DAY,), now)).alive
        both = Gates([elsewhere, mine])
        assert await both.read(connection, canaries[0], (DAY,), now) == own
        assert (await both.read(connection, canaries[1], (DAY,), now)).reason == foreign.reason
        one = Gates([elsewhere])
        assert (await one.read(connection, canaries[1], (DAY,), now)).alive
    finally:
        await connection.close()


def test_one_failure_among_a_hundred_holds_the_rollout_and_counts_as_one():
    decisions = told(300)
    decisions[150] = (decisions[150][0], {**GOOD, "error": 1.0})
    found = judged(decisions, queries=100)
    assert not found.alive
    assert "error_rate was broken" in found.reason
    assert found.candidate[0].bad == 1.0
    decisions[150][1]["faithfulness"] = None
    for _, one in decisions[100:200]:
        one["faithfulness"] = 0.0
    assert judged(decisions, queries=100).candidate[0].bad == 100.0


@pytest.mark.parametrize("silent", range(11))
def test_few_without_a_latency_break_nothing(silent):
    decisions = told(300)
    for _, one in decisions[:silent]:
        del one["latency_ms"]
    assert judged(decisions, queries=100).alive
    for _, one in decisions[20:26]:
        one["latency_ms"] = 900.0
    assert not judged(decisions, queries=100).alive


def test_settings_that_never_hold_are_refused():
    for queries, batches in ((10_000, 3), (100, 200)):
        with pytest.raises(InputError, match="take fewer"):
            GateSource(TUNED, "rag", "retrieval", queries=queries, batches=batches)


async def test_what_was_done_instead_and_what_came_too_late_is_left_out(database, tenant):
    w = await world(database, tenant.id, log=60)
    begun = await w.start(overrides=OVERRIDES)
    canary = replace(begun, stage="canary", share=0.5)
    await w.arrive(canary, 100, outcomes=lambda _: GOOD)
    (source,) = gates(w, queries=10, batches=3)
    worker, app = await database.connect("worker"), await database.connect("app")
    try:
        now = datetime.fromtimestamp(w.clock.now, UTC) + timedelta(hours=1)
        assert (await source.read(worker, canary, (DAY,), now)).alive
        async with as_tenant(worker, w.tenant):
            mine = await worker.fetch(
                "SELECT id, at, window_ends FROM decision WHERE rollout = $1 AND arm = 'candidate'",
                str(begun.id),
            )

        async def told_later(one, at, **changes):
            row = event(
                w.tenant,
                one["id"],
                at=at,
                received_at=at,
                outcomes={"latency_ms": 900.0},
                body=None,
            )
            await log_events(app, [row._replace(**changes)])

        for one in mine:
            await told_later(one, one["window_ends"] + timedelta(minutes=5))
        found = await source.read(worker, canary, (DAY,), now)
        assert (found.alive, found.candidate[0].bad) == (True, 0.0)
        total = found.candidate[0].total
        for one in mine[:12]:
            await told_later(one, one["at"], action_taken="something else")
        found = await source.read(worker, canary, (DAY,), now)
        assert (found.alive, found.candidate[0].bad) == (True, 0.0)
        assert found.candidate[0].total < total
    finally:
        await worker.close()
        await app.close()
