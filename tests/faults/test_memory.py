"""Memory stays where it is, however many decisions were made."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.harness import resident_bytes
from tests.faults.traffic import traffic


@pytest.mark.slow
async def test_thirty_thousand_decisions_leave_memory_flat(made):
    access = await made.tenant("one")
    await asyncio.to_thread(made.start_service)
    pid = made.processes["service"].pid
    request = {"skill": "search", "decision": "depth", "context": {"intent": "a", "length": 0.5}}
    async with traffic(made, access, timeout_s=60) as asking:

        async def decide(batches):
            body = {"requests": [{**request, "deadline_ms": 60_000}] * 100}
            for place in range(0, batches, 4):
                answers = await asyncio.gather(
                    *[asking.post("/v1/decide", body) for _ in range(min(4, batches - place))]
                )
                assert {status for status, _ in answers} == {200}

        await decide(100)
        before = resident_bytes(pid)
        await decide(300)
        assert resident_bytes(pid) < 1.05 * before
