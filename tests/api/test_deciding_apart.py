"""Requests that were begun together: what befalls one of them is its own affair."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from steersman.serving.decide import Decider
from steersman.wire import Decision

if TYPE_CHECKING:
    import pytest

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}
BAD = {**DECIDE, "context": {"intent": "bad"}, "idempotency_key": "k-bad"}


@asynccontextmanager
async def locked(database):
    """Let nobody write a decision."""
    lock = await database.connect(None)
    try:
        async with lock.transaction():
            await lock.execute("LOCK TABLE steersman.decision IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await lock.close()


async def loaded(s, tenant) -> Decider:
    """Return what decides with the parts of a service, with its point loaded."""
    deciding = Decider(s.service.replicas, s.service.decisions, None, b"0" * 32)
    assert (await deciding.decide(tenant.id, DECIDE)).logged is True
    return deciding


class _Scrubbing:
    """What fails for one context, as a part might that somebody else wrote."""

    broken = True

    def context(self, context, *_):
        if self.broken and context["intent"] == "bad":
            raise LookupError(context)
        return context, {}


async def test_who_is_cancelled_takes_nobody_along(serving, database, tenant) -> None:
    async with serving() as s:
        deciding = await loaded(s, tenant)
        async with locked(database):
            asked = [
                asyncio.create_task(deciding.decide_many(tenant.id, [DECIDE] * 3)) for _ in range(2)
            ]
            asked.append(asyncio.create_task(deciding.decide(tenant.id, DECIDE)))
            await s.until(lambda: s.service.decisions.depth == 7)
            asked[0].cancel()
            await asyncio.sleep(0.05)
        gone, batch, one = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(gone, asyncio.CancelledError)
        assert [it.logged for it in [*batch, one]] == [True] * 4


async def test_an_error_nobody_thought_of_is_told_to_its_own_request(
    serving, tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as s:
        deciding = await loaded(s, tenant)
        served = s.service.replicas.find(tenant.id, "search", "depth")
        scrubbing = _Scrubbing()
        monkeypatch.setattr(served, "scrubbing", scrubbing)
        keyed = {**DECIDE, "idempotency_key": "k-good"}
        bodies = [DECIDE, keyed, BAD, DECIDE]
        said = await asyncio.gather(
            *(deciding.decide(tenant.id, body) for body in bodies),
            deciding.decide_many(tenant.id, [DECIDE, {**BAD, "idempotency_key": "k-2"}]),
            return_exceptions=True,
        )
        assert isinstance(said.pop(2), LookupError)
        *alone, (good, problem) = said
        assert [it.logged for it in [*alone, good]] == [True] * 4
        assert (problem.code, problem.status) == ("internal", 500)
        scrubbing.broken = False
        assert (await deciding.decide(tenant.id, BAD)).logged is True  # its key was not used up
        again = await s.ask("POST", "/v1/decide", keyed)
        assert again.body["decision_id"] == str(alone[1].decision_id)


async def test_the_deadline_counts_from_when_a_request_was_read(
    serving, database, tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as s:
        deciding = await loaded(s, tenant)
        replica = s.replica("search", "depth")

        class Slow:
            likeness = None

            def decide(self, *args, policy=replica.policy, **more):
                time.sleep(0.8)  # drawing holds the loop
                return policy.decide(*args, **more)

        monkeypatch.setattr(replica, "policy", Slow())
        async with locked(database):
            begun = time.monotonic()
            answer = await deciding.decide(tenant.id, {**DECIDE, "deadline_ms": 900})
            took = time.monotonic() - begun
        assert answer.logged == "unknown"
        assert took < 1.6  # drawing and the wait one after the other: 1.7


async def test_large_batches_that_come_together_are_written_in_pieces(serving, tenant) -> None:
    async with serving() as s:
        deciding = await loaded(s, tenant)
        commits, sizes = s.service.decisions, []
        submit = commits.submit

        def counted(rows, **more):
            sizes.append(len(rows))
            return submit(rows, **more)

        commits.submit = counted
        many = [deciding.decide_many(tenant.id, [DECIDE] * 600) for _ in range(3)]
        *batches, one = await asyncio.gather(*many, deciding.decide(tenant.id, DECIDE))
        assert [len(batch) for batch in batches] == [600] * 3
        assert all(isinstance(it, Decision) and it.logged is True for it in [*batches[0], one])
        assert sizes == [512, 88] * 3 + [1]
