"""Latency by episode: of a run over the baseline on the same queries, of a canary over control."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steersman.db.tenants import create_tenant
from steersman.errors import DataError, InputError
from steersman.platform.postgres.database import as_tenant
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.latencies import of_canary, of_run
from tests.rollouts.world import world as rollout_world
from tests.systems.rag_tuner.worlds import world

RRF = Configuration("rrf")


@pytest.fixture(scope="module")
def database(database_alone):
    """Return a database of this file: its learner would wait for what other tests never finish."""
    return database_alone


def test_the_baseline_is_looked_up_on_the_queries_of_each_evaluation():
    recorded = world(queries=60)
    lines = [
        {"queries": [0, 5, 9], "of_query": {"latency_ms": [1.0, 2.0, 9.0]}},
        {"queries": [7], "of_query": {"latency_ms": [4.0]}},
    ]
    found = of_run(lines, recorded, RRF)
    assert found.p50 == (2.0, 4.0)
    assert found.p95 == pytest.approx((8.3, 4.0))
    wanted = [recorded.evaluate(RRF, np.array(one["queries"])).latency_ms for one in lines]
    assert found.baseline_p50 == pytest.approx([np.median(one) for one in wanted])
    with pytest.raises(InputError, match="was not recorded"):
        of_run(lines, recorded, Configuration("bm25", k=99))


async def test_a_canary_is_told_in_episodes_over_what_control_took_meanwhile(database, tenant):
    w = await rollout_world(database, tenant.id, log=60)
    begun = await w.start()
    # In the shadow control alone serves: that was before.
    await w.arrive(begun, 60, outcomes=lambda _: {"latency_ms": 1000.0})
    canary = replace(begun, stage="canary", share=0.5)
    for took in (20.0, 40.0):
        await w.arrive(
            canary, 60, outcomes=lambda arm, took=took: {"latency_ms": took + (arm == "candidate")}
        )
        w.clock.now += 3600
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            found = await of_canary(connection, tenant.id, str(begun.id), queries=10)
        assert (found.p50[0], found.baseline_p50[0]) == (21.0, 20.0)
        assert (found.p50[-1], found.baseline_p50[-1]) == (41.0, 40.0)
        assert 4 <= len(found.p50) <= 8
        other = await create_tenant(database, f"{tenant.name}-other", actor="test")
        async with as_tenant(connection, other.id):
            with pytest.raises(DataError, match="no decision of the candidate with an outcome"):
                await of_canary(connection, other.id, str(begun.id))
        with pytest.raises(InputError, match="queries is 9"):
            await of_canary(connection, tenant.id, str(begun.id), queries=9)
    finally:
        await connection.close()
