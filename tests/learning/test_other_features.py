"""A lineage learns decisions of other declarations, such as those of candidates."""

import time

import numpy as np
import pytest
from msgspec.structs import replace

from steersman.db.tenants import create_tenant
from tests.learning.world import (
    bits,
    decided,
    declared,
    happened,
    learn_all,
    replica_of,
    rows,
    write,
)

PAIRS = [
    ({"policy": "lin_ucb"}, {"policy": "lin_ucb", "dim": 16}),
    ({"policy": "lin_ts"}, {"policy": "beta"}),
    ({"policy": "beta"}, {"policy": "lin_ucb"}),
    ({"policy": "lin_ucb"}, {"policy": "squarecb"}),
]


@pytest.mark.parametrize(("line", "other"), PAIRS)
async def test_decisions_of_another_declaration_are_encoded_anew(database, line, other):
    states = []
    for by_candidate in (True, False):
        tenant = await create_tenant(database, f"f-{time.time_ns()}", actor="test")
        await declared(database, tenant.id, **line)
        candidate = await declared(database, tenant.id, **other)
        row = await declared(database, tenant.id, **line)
        rng = np.random.default_rng(2)
        made = [decided(row, rng) for _ in range(12)]
        if by_candidate:
            rng = np.random.default_rng(2)
            again = [decided(candidate, rng) for _ in range(12)]
            made[::2] = [
                replace(
                    one,
                    spec_hash=candidate.spec_hash,
                    feature_hash=candidate.feature_hash,
                    x=theirs.x,
                    key=theirs.key,
                    features=theirs.features,
                )
                for one, theirs in zip(made[::2], again[::2], strict=True)
            ]
        await write(
            database, made, [happened(one, {"success": i / 12}) for i, one in enumerate(made)]
        )
        await learn_all(database)
        replica = await replica_of(database, tenant.id)
        assert replica.seq == 12
        states.append(bits(replica.policy))
    assert states[0] == states[1]


async def test_features_that_were_never_asked_for_cannot_be_learned_from(database, tenant):
    await declared(database, tenant.id, policy="squarecb")
    candidate = await declared(database, tenant.id, policy="lin_ucb")
    row = await declared(database, tenant.id, policy="squarecb")
    rng = np.random.default_rng(3)
    made = [decided(candidate, rng), decided(row, rng)]
    await write(database, made, [happened(one, {"success": 1.0}) for one in made])
    seen = []
    await learn_all(database, watch=seen.append)
    assert sum(done.refused for done in seen) == 1
    learned = await rows(database, tenant.id, "SELECT decision FROM update")
    assert [one["decision"] for one in learned] == [made[1].id]
