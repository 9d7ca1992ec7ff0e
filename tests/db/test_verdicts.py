"""Verdict rows: gapless numbers, written by the holder only, never changed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import pytest

from steersman.db.rollout_transitions import claim_rollout, move_rollout
from steersman.db.tenants import create_tenant
from steersman.db.verdicts import add_verdict, latest_verdict, verdicts_of
from steersman.errors import FencedError
from tests.db.published import declared
from tests.db.rows import connected
from tests.db.test_rollouts import started
from tests.kept import run

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
INPUTS = {"reward": {"control": [50, 0.5], "candidate": [51, 0.25]}, "seed": 7, "lag": None}


@pytest.fixture
def rollout(database, tenant):
    """Return a rollout that was started."""

    async def made():
        return await started(database, await declared(database, tenant.id))

    return run(made())


async def judged(database, row, epoch, verdict="hold", acted="held"):
    async with connected(database, "worker", row.tenant) as connection:
        return await add_verdict(
            connection,
            row,
            epoch,
            at=NOW,
            verdict=verdict,
            acted=acted,
            inputs=INPUTS,
            reasons=["too few units", "« 50 »"],
        )


async def test_verdicts_follow_each_other_with_what_they_follow_from(database, rollout):
    first = await judged(database, rollout, 0)
    assert (first.seq, first.stage, first.step, first.share) == (1, "shadow", 0, 0.0)
    assert (first.verdict, first.acted, first.at) == ("hold", "held", NOW)
    assert (first.inputs, first.reasons) == (INPUTS, ["too few units", "« 50 »"])
    others = [await judged(database, rollout, 0, "not_enough_data", "none") for _ in range(3)]
    async with connected(database, "app", rollout.tenant) as connection:
        tenant, identifier = rollout.tenant, rollout.id
        assert await verdicts_of(connection, tenant, identifier) == [first, *others]
        assert await verdicts_of(connection, tenant, identifier, after=1, limit=2) == others[:2]
        assert await latest_verdict(connection, tenant, identifier) == others[-1]
        assert await latest_verdict(connection, tenant, uuid4()) is None


async def test_who_is_fenced_says_nothing_more(database, rollout):
    async with connected(database, "worker", rollout.tenant) as connection:
        await claim_rollout(connection, rollout.tenant, rollout.id, "ann", idle_s=None)
    with pytest.raises(FencedError):
        await judged(database, rollout, 0)
    assert (await judged(database, rollout, 1)).seq == 1


async def test_a_verdict_is_there_with_what_was_done_or_not_at_all(database, rollout):
    async def fails():
        async with connected(database, "worker", rollout.tenant) as connection:
            await add_verdict(
                connection,
                rollout,
                0,
                at=NOW,
                verdict="promote",
                acted="next_stage",
                inputs={},
                reasons=[],
            )
            await move_rollout(connection, rollout, 0, now=NOW, stage="canary", share=0.05)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    async with connected(database, "app", rollout.tenant) as connection:
        assert await latest_verdict(connection, rollout.tenant, rollout.id) is None
    assert (await judged(database, rollout, 0)).seq == 1


async def test_many_at_once_leave_no_gap(database, rollout):
    rows = await asyncio.gather(*(judged(database, rollout, 0) for _ in range(8)))
    assert sorted(row.seq for row in rows) == list(range(1, 9))


@pytest.mark.parametrize(("verdict", "acted"), [("perhaps", "none"), ("hold", "shrugged")])
async def test_other_words_are_refused(database, rollout, verdict, acted):
    with pytest.raises(asyncpg.CheckViolationError):
        await judged(database, rollout, 0, verdict, acted)


@pytest.mark.parametrize("role", ["app", "worker"])
@pytest.mark.parametrize(
    "statement", ["UPDATE verdict SET verdict = 'hold'", "DELETE FROM verdict"]
)
async def test_nobody_takes_a_verdict_back(database, rollout, role, statement):
    await judged(database, rollout, 0, "roll_back", "rolled_back")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with connected(database, role, rollout.tenant) as connection:
            await connection.execute(statement)


async def test_one_tenant_neither_reads_nor_passes_anothers_verdicts(database, rollout):
    mine = (await create_tenant(database, f"t-{uuid4().hex}", actor="test")).id
    await judged(database, rollout, 0)
    async with connected(database, "worker", mine) as connection:
        assert await verdicts_of(connection, rollout.tenant, rollout.id) == []
        assert await verdicts_of(connection, mine, rollout.id) == []
        assert await latest_verdict(connection, rollout.tenant, rollout.id) is None
        with pytest.raises(FencedError):
            await add_verdict(
                connection,
                rollout,
                0,
                at=NOW,
                verdict="promote",
                acted="promoted",
                inputs={},
                reasons=[],
            )
    async with connected(database, "app", rollout.tenant) as connection:
        assert len(await verdicts_of(connection, rollout.tenant, rollout.id)) == 1
