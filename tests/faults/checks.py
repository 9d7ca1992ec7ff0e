"""What must hold after anything: promises kept once, numbers without gaps, states to the bit.

Everything is read as the server's superuser, past row-level security, and compared with what the
clients were told.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict

import numpy as np

from steersman.db.points import points_of
from steersman.db.snapshots import line_of
from steersman.db.updates import updates_after
from steersman.features import FeatureMap
from steersman.learning.replica import Replica, load
from steersman.learning.verify import verify
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import state_sha256, unpack_state
from steersman.rewards import evaluate

_CONTEXTS = [
    {"intent": intent, "length": length}
    for intent, length in (("c", 0.25), ("a", -1.0), ("b", 0.0), ("d", 2.0), ("new", 0.5))
]


async def check_promises(database, access, ledger):
    """Every promised decision and event is stored exactly once, as it was answered."""
    connection = await database.connect(None)
    try:
        await _check_decisions(connection, access, ledger)
        await _check_events(connection, access, ledger)
    finally:
        await connection.close()


async def _check_decisions(connection, access, ledger):
    rows = await connection.fetch(
        "SELECT id, action, p, degraded FROM decision WHERE tenant = $1", access.tenant
    )
    counts = Counter(row["id"] for row in rows)
    stored = {str(row["id"]): row for row in rows}
    assert max(counts.values(), default=1) == 1
    absent = [name for name in ledger.logged if name not in stored]
    assert not absent, f"{len(absent)} of {len(ledger.logged)} logged decisions are lost"
    for answer in ledger.answers:
        row = stored.get(answer["decision_id"])
        if row is not None:
            told = answer["action"], answer["propensity"], answer["degraded"]
            assert (row["action"], row["p"], row["degraded"]) == told
    assert ledger.records <= stored.keys()
    for answers in ledger.by_key.values():
        assert len({a["decision_id"] for a in answers if a["logged"] is True}) <= 1
    actions = defaultdict(set)
    for answer in ledger.answers:
        actions[answer["decision_id"]].add((answer["action"], answer["propensity"]))
    assert {len(named) for named in actions.values()} <= {1}


async def _check_events(connection, access, ledger):
    rows = await connection.fetch(
        "SELECT id, decision, outcomes FROM event WHERE tenant = $1", access.tenant
    )
    counts = Counter(row["id"] for row in rows)
    assert max(counts.values(), default=1) == 1
    stored = {row["id"]: (str(row["decision"]), row["outcomes"]) for row in rows}
    lost = ledger.outcomes.keys() - stored.keys()
    assert not lost, f"{len(lost)} of {len(ledger.outcomes)} acknowledged events are lost"
    for name, told in ledger.outcomes.items():
        assert stored[name] == told


async def settled(database, access, *, timeout_s=90.0):
    """Wait until no work that is due is left."""
    connection = await database.connect(None)
    try:
        until = time.monotonic() + timeout_s
        while await connection.fetchval(
            "SELECT count(*) FROM work WHERE tenant = $1 AND due_at <= now()", access.tenant
        ):
            assert time.monotonic() < until, "work is left undone"
            await asyncio.sleep(0.1)
    finally:
        await connection.close()


async def check_learning(database, access):
    """Numbers have no gaps, each outcome counts once, and every way to the state gives its bits."""
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, access.tenant):
            for row in await points_of(connection, access.tenant):
                await _check_numbers(connection, row)
                await _check_rewards(connection, row)
                await _check_state(connection, row)
                verified = await verify(database, row)
                assert verified.holds, verified
                assert not verified.pending
                assert not verified.not_learned
    finally:
        await connection.close()


async def _check_numbers(connection, row):
    named = row.tenant, row.skill, row.point, row.snapshot
    numbers = await connection.fetchval(
        "SELECT array_agg(seq ORDER BY seq) FROM update "
        "WHERE tenant = $1 AND skill = $2 AND point = $3 AND snapshot = $4",
        *named,
    )
    assert numbers == list(range(1, len(numbers) + 1))
    given_out = await connection.fetchval(
        "SELECT seq FROM learner WHERE tenant = $1 AND skill = $2 AND point = $3 AND snapshot = $4",
        *named,
    )
    assert given_out == len(numbers)


async def _check_rewards(connection, row):
    """What a snapshot holds of a decision is the reward of all its events, once."""
    events = await connection.fetch(
        "SELECT e.decision, e.outcomes FROM event AS e JOIN decision AS d ON d.id = e.decision "
        "WHERE d.skill = $1 AND d.point = $2 AND d.weight > 0 AND NOT d.degraded "
        "AND e.outcomes IS NOT NULL AND e.at <= d.window_ends ORDER BY e.at, e.received_at, e.id",
        *(row.skill, row.point),
    )
    outcomes = defaultdict(dict)
    for event in events:
        outcomes[event["decision"]].update(event["outcomes"])
    wanted = {
        decision: reward.value
        for decision, came in outcomes.items()
        if (reward := evaluate(row.spec.reward, came)).value is not None
    }
    held = defaultdict(lambda: [0.0, 0.0])
    for stretch in await line_of(connection, (row.tenant, row.skill, row.point), row.snapshot):
        for decision, reward, weight in await connection.fetch(
            "SELECT decision, reward_change, weight_change FROM update WHERE skill = $1 "
            "AND point = $2 AND snapshot = $3 AND ($4::bigint IS NULL OR seq <= $4)",
            *(row.skill, row.point, *stretch),
        ):
            held[decision][0] += reward
            held[decision][1] += weight
    learned = {decision for decision, (_, weight) in held.items() if weight != 0}
    assert not learned - wanted.keys(), f"learned, and should not be: {learned - wanted.keys()}"
    assert not wanted.keys() - learned, f"should be learned: {wanted.keys() - learned}"
    for decision, (reward, weight) in held.items():
        if decision in wanted:
            assert weight == 1
            assert abs(reward - wanted[decision]) < 1e-9


async def _check_state(connection, row):
    replica = await load(connection, row)
    whole = await from_base(connection, row, replica.seq)
    assert same_bits(replica.policy.state(), whole.state())


async def from_base(connection, row, seq):
    """Return the policy after some updates, made from the base snapshot without a checkpoint."""
    base = await connection.fetchval(
        "SELECT state FROM snapshot WHERE skill = $1 AND point = $2 AND id = $3",
        *(row.skill, row.point, row.snapshot),
    )
    replica = Replica(
        row, load_policy(unpack_state(base)), FeatureMap(row.spec.context), row.snapshot
    )
    point = row.tenant, row.skill, row.point
    while rows := await updates_after(connection, point, row.snapshot, replica.seq, until=seq):
        replica.apply(rows)
    return replica.policy


async def check_live(database, access, asking, *, timeout_s=20.0):
    """Every service has applied all updates, holds the bits of the log and decides as it does."""
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, access.tenant):
            (row,) = await points_of(connection, access.tenant)
            replica = await load(connection, row)
    finally:
        await connection.close()
    for url in asking.urls():
        until = time.monotonic() + timeout_s
        while True:
            answer = await asking.decide(keyed=False, url=url, context=_CONTEXTS[0])
            follows = answer is not None and answer["update_seq"] == replica.seq
            if follows and not answer["degraded"]:
                break
            assert time.monotonic() < until, "a service does not follow the log"
            await asyncio.sleep(0.05)
        (point,) = await asking.status(url)
        assert point["replica_seq"] == replica.seq
        assert point["replica_sha256"] == state_sha256(replica.policy.state())
        for context in _CONTEXTS:
            answer = await asking.decide(keyed=False, url=url, context=context)
            assert answer["update_seq"] == replica.seq
            _check_distribution(row, replica, context, answer)


def _check_distribution(row, replica, context, answer):
    """What a service answers is what the state of the log draws from, every entry of it."""
    x, _ = replica.encode(context)
    whole = replica.policy.distribution(x)
    names = row.spec.actions.names
    drawn = whole[names.index(answer["action"])]
    # The state is the same to the bit; what is worked out from it, update by update or all at once,
    # is so to some 1e-11.
    np.testing.assert_allclose(answer["propensity"], drawn, rtol=0, atol=1e-9)
    told = [answer["distribution"][name] for name in names]
    np.testing.assert_allclose(told, whole, rtol=0, atol=1e-6)  # as float32, but for the drawn


def same_bits(left, right):
    """Return whether two states are equal to the bit."""
    return left.keys() == right.keys() and all(
        np.asarray(left[name]).tobytes() == np.asarray(right[name]).tobytes() for name in left
    )
