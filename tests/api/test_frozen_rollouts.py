"""Frozen, paused and resumed while the learner goes on: arms stay, nothing that came is lost."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.learning.verify import verify
from steersman.snapshots.verified_bases import VerifiedBases
from steersman.workers.learner import run_learner
from tests.api.rollouts import until
from tests.api.test_serving_rollouts import ask_units, prepared, staged
from tests.learning.world import QUICK, bits, nothing_due, point_of, replica_of, rows

POINT = ("search", "depth")
_TOGETHER = 20


class Visitors:
    """New units that ask and report all the time; a learner learns it meanwhile."""

    def __init__(self, s, database, tenant) -> None:
        self.answers = []
        self._s, self._database, self._tenant = s, database, tenant

    @asynccontextmanager
    async def coming(self):
        """Let them come; at the end all that they reported is learned."""
        ending, stop, bases = asyncio.Event(), asyncio.Event(), VerifiedBases(self._s.home)
        learning = asyncio.create_task(
            run_learner(self._database, stop=stop, settings=QUICK, bases=bases)
        )
        coming = asyncio.create_task(self._come(ending))
        try:
            yield
            ending.set()
            await coming
            await nothing_due(self._database, running=learning)
        finally:
            coming.cancel()
            stop.set()
            await asyncio.gather(coming, learning, return_exceptions=True)
            bases.close()

    async def served(self) -> set[tuple[str, str, int]]:
        """Return what serves each arm from now on, while some sixty more are learned from."""
        begun = len(self.answers) + _TOGETHER  # some may have asked before
        learned = await self.learned()
        async with asyncio.timeout(60):
            while len(self.answers) < begun + 60 or await self.learned() < learned + 60:  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.02)
        found = self.answers[begun:]
        return {(one["arm"], one["snapshot"], one["update_seq"]) for one in found}

    async def learned(self) -> int:
        """Return the number of the last update of the line."""
        ((seq,),) = await rows(self._database, self._tenant.id, "SELECT seq FROM learner")
        return seq

    async def _come(self, stop) -> None:
        while not stop.is_set():
            begun = len(self.answers)
            made = await ask_units(self._s, [f"v{begun + n}" for n in range(_TOGETHER)])
            events = [
                {
                    "event_id": f"e-{one['decision_id']}",
                    "decision_id": one["decision_id"],
                    "type": "feedback.submit",
                    "outcomes": {"clicked": 0.9 if one["action"] == "deep" else 0.2},
                }
                for one in made
            ]
            told = await self._s.ask("POST", "/v1/events", {"events": events})
            assert {one["status"] for one in told.body["results"]} == {"stored"}
            self.answers += made
            await asyncio.sleep(0.01)


def by_command(s, database, tenant):
    """Return what does things to a rollout as a person does who types."""
    told = {"DATABASE_URL": database.url, "STEERSMAN_HOME": str(s.home)}

    async def do(rollout, action):
        words = ["rollout", action, str(rollout.id), "--reason", "a drill", "--tenant", tenant.name]
        ran = await asyncio.to_thread(CliRunner().invoke, main, words, env=told)
        assert ran.exit_code == 0, (ran.output, ran.exception)

    return do


def by_request(s, _database, _tenant):
    """Return what does things to a rollout as a program does."""

    async def do(rollout, action):
        answer = await s.ask("POST", f"/v1/rollouts/{rollout.id}/{action}", {"reason": "a drill"})
        assert answer.status == 200, answer.body

    return do


async def follows(s, database, tenant, visitors) -> None:
    """What serves is what follows from all that came, and no update is missing."""
    last = await visitors.learned()
    await until(s, update_seq=last)
    found = await verify(database, await point_of(database, tenant.id))
    assert (found.holds, found.not_learned, found.pending, found.updates) == (True, [], 0, last)
    assert bits(s.replica(*POINT).policy) == bits((await replica_of(database, tenant.id)).policy)


@pytest.mark.slow
@pytest.mark.parametrize("by", [by_command, by_request])
async def test_both_arms_stay_where_they_are_while_learning_goes_on(
    by, database, tenant, serving
) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        rollout = await ships.start(version, "ab", 0.5)
        await staged(s, "ab", "candidate")
        do, visitors = by(s, database, tenant), Visitors(s, database, tenant)
        asked = len(await rows(database, tenant.id, "SELECT id FROM decision"))
        arms = {("control", "0.1.0", 40), ("candidate", version, 0)}
        async with visitors.coming():
            assert await visitors.served() == arms
            for action in ("freeze", "resume", "pause", "freeze", "resume", "pause", "resume"):
                await do(rollout, action)
                assert await visitors.served() == arms, action
            await do(rollout, "rollback")
            await s.until(lambda: s.service.replicas.find(tenant.id, *POINT).arms is None)
            assert {one[:2] for one in await visitors.served()} == {("control", "0.1.0")}
        # 40 before, and one for each of those who reported: of both arms, whatever was frozen.
        assert await visitors.learned() == 40 + len(visitors.answers)
        assert len(await rows(database, tenant.id, "SELECT id FROM decision")) == asked + len(
            visitors.answers
        )
        await follows(s, database, tenant, visitors)


@pytest.mark.slow
async def test_what_was_promoted_is_frozen_and_goes_on_where_the_log_is(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        rollout = await ships.start(version, "live", 0.95)
        await staged(s, "live", "candidate")
        do, visitors = by_request(s, database, tenant), Visitors(s, database, tenant)
        async with visitors.coming():
            await visitors.served()
            await ships.promote(rollout)
            await s.until(lambda: s.replica(*POINT).snapshot == version)
            await visitors.served()
            await do(rollout, "freeze")
            ((pinned,),) = await rows(database, tenant.id, "SELECT pinned_seq FROM decision_point")
            await until(s, snapshot=version, update_seq=pinned)
            assert await visitors.served() == {("control", version, pinned)}
            assert await visitors.learned() > pinned
            await do(rollout, "resume")
            async with asyncio.timeout(60):
                while visitors.answers[-1]["update_seq"] <= pinned:  # noqa: ASYNC110 (likewise)
                    await asyncio.sleep(0.02)
        # 20 of the 40 before were learned since the version was frozen.
        assert await visitors.learned() == 20 + len(visitors.answers)
        await follows(s, database, tenant, visitors)
