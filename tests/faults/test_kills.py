"""kill -9, twenty times each, under load: nothing that was promised is lost or doubled."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.faults.checks import check_promises
from tests.faults.traffic import traffic

KILLS = 20


@pytest.mark.slow
async def test_services_that_are_killed_keep_their_promises(made):
    rng = random.Random(1)
    access = await made.tenant("one")
    for name in ("left", "right"):
        made.start_service(name, wait=False)
    for name in ("left", "right"):
        await asyncio.to_thread(made.wait_ready, name)
    async with traffic(made, access) as asking:
        async with asking.flowing():
            for kill in range(KILLS):
                await asyncio.sleep(rng.uniform(0.05, 0.4))
                name = ("left", "right")[kill % 2]
                made.kill(name)
                made.start_service(name, wait=False)
                await asyncio.to_thread(made.wait_ready, name)
        ledger = asking.ledger
        assert len(ledger.logged) > 500
        assert ledger.lost > 0
        await check_promises(made.database, access, ledger)
