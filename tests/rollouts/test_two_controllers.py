"""One controller per rollout, whatever is killed or paused: nobody acts twice."""

import asyncio
import signal

import pytest

from steersman.db.rollout_transitions import move_rollout
from steersman.errors import FencedError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.commands import act
from steersman.workers.rollout_controller import Claims
from tests.learning.processes import running, stopped, until
from tests.rollouts.controlling_process import LEASE_S
from tests.rollouts.world import PACES, EverybodysClock, check_history, world

QUICK = {"window_s": 0.4, "min_s": 0.3}
STEPS = ["shadow", "canary", "ab", "ab", "live"]


def controller(database, holder, signal_name="none", at=0):
    """Run a controller as a process of its own."""
    return running("tests.rollouts.controlling_process", database.url, holder, signal_name, at)


async def check_once(w, identifier, *, stages=STEPS, end="promoted"):
    """Every step was left exactly once, in the verdicts, the audit and the row."""
    rows = await check_history(w, identifier)
    acted = [row for row in rows if row.acted in {"next_stage", "promoted", "rolled_back"}]
    assert [row.stage for row in acted] == stages
    assert [row.step for row in acted] == list(range(len(stages)))
    audited = await w.read(
        lambda it: it.fetch(
            "SELECT action, detail->>'stage' AS stage FROM audit WHERE action = ANY($1) "
            "ORDER BY seq",
            ["rollout.next_stage", f"rollout.{end}"],
        )
    )
    moves = ["rollout.next_stage"] * (len(stages) - 1) + [f"rollout.{end}"]
    assert [row["action"] for row in audited] == moves
    last = await w.rollout(identifier)
    assert last.status == end
    assert await w.read(lambda it: it.fetchval("SELECT count(*) FROM rollout_task")) == 0


async def real(database, tenant):
    w = await world(database, tenant.id, **QUICK)
    w.clock = EverybodysClock()
    return w, await w.start()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_a_controller_killed_at_every_change_leaves_all_of_it_or_nothing(
    database, tenant, seed
):
    """Five kills in each of four rollouts, each after another query of a change."""
    w, begun = await real(database, tenant)
    kills = ",".join(str(1 + (seed + 3 * kill) % 14) for kill in range(5))
    async with w.visited(begun.id, candidate=0.9, control=0.3):
        with controller(database, "killed", "SIGKILL", f"{kills},0") as process:

            async def ended():
                return process.poll() is not None or not (await w.rollout(begun.id)).is_under_way

            await until(ended, within_s=120.0, every_s=0.2)
            assert process.poll() is None
    await check_once(w, begun.id)
    assert (await w.point()).snapshot == w.candidate


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 4])
async def test_a_paused_controller_is_taken_over_from_and_then_fenced(database, tenant, at):
    w, begun = await real(database, tenant)
    async with w.visited(begun.id, candidate=0.9, control=0.3):
        with controller(database, "paused", "SIGSTOP", at) as paused:
            await until(lambda: stopped(paused))
            with controller(database, "other") as other:

                async def moved():
                    row = await w.rollout(begun.id)
                    return row.step >= 2 or not row.is_under_way

                await until(moved, every_s=0.2)
                paused.send_signal(signal.SIGCONT)

                async def ended():
                    return not (await w.rollout(begun.id)).is_under_way

                await until(ended, every_s=0.2)
                await asyncio.sleep(LEASE_S)
                assert (other.poll(), paused.poll()) == (None, None)
    await check_once(w, begun.id)


@pytest.mark.slow
async def test_of_three_at_once_one_acts(database, tenant):
    w, begun = await real(database, tenant)
    async with w.visited(begun.id, candidate=0.9, control=0.3):
        with (
            controller(database, "a"),
            controller(database, "b"),
            controller(database, "c"),
        ):

            async def ended():
                return not (await w.rollout(begun.id)).is_under_way

            await until(ended, every_s=0.2)
            await asyncio.sleep(LEASE_S)
    await check_once(w, begun.id)


async def test_what_the_former_holder_writes_is_refused(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    task = tenant.id, begun.id
    first, second = [await database.connect("worker") for _ in range(2)]
    ours, theirs = Claims(first, "we", 0.05), Claims(second, "they", 0.05)
    held = (await ours.take(task)).row
    assert await Claims(second, "others", 30.0).take(task) is None
    await asyncio.sleep(0.1)
    taken = await theirs.take(task)
    assert (taken.row.epoch, taken.row.holder) == (held.epoch + 1, "they")
    with pytest.raises(FencedError, match="epoch"):
        async with as_tenant(first, tenant.id):
            await move_rollout(first, held, held.epoch, now=held.started_at, stage="live", step=4)
    assert (await w.rollout(begun.id)).stage == "shadow"
    await ours.give_up(task)
    assert (await theirs.take(task)) is taken
    for connection in (first, second):
        await connection.close()


async def test_a_person_fences_the_controller_which_looks_again(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled(settings=PACES):
        await w.turn()
        before = await w.rollout(begun.id)
        who = {"actor": "ann", "reason": "lunch", "clock": w.clock.wall}
        paused = await act(database, tenant.id, begun.id, "pause", **who)
        assert (paused.status, paused.epoch) == ("paused", before.epoch + 1)
        await w.drive(begun.id, steps=2)
        now = await w.rollout(begun.id)
        assert (now.status, now.stage, now.holder) == ("paused", "shadow", "test")
        assert now.epoch == paused.epoch + 1
    await check_history(w, begun.id)
