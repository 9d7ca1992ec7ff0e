"""Erasure and export of a unit; erased rows stay erased."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import msgspec
import pytest

from steersman.db.audit import history
from steersman.db.decisions import find_decision, log_decisions
from steersman.db.declarations import declare
from steersman.db.erasure import erase, export, sweep
from steersman.db.packed_events import log_events
from steersman.db.tenants import create_tenant
from steersman.errors import InputError
from steersman.points.state_bytes import pack_state
from steersman.wire import new_id
from tests.db.rows import connected, counts, decision, event
from tests.db.test_points import DOCUMENT

SECRETS = ("my secret question", "my secret remark")


async def write(database, tenant, unit, *, episode=None, count=2):
    """Write a unit's decisions with event, reward and update each; return their ids."""
    rows = [
        decision(
            tenant.id,
            unit=unit,
            episode=episode,
            context={"question": SECRETS[0]},
            idempotency_key=uuid4().hex,
            body_hash=bytes(16),
        )
        for _ in range(count)
    ]
    async with connected(database) as connection:
        await log_decisions(connection, rows, settling=[row.id for row in rows])
        await log_events(
            connection,
            [event(tenant.id, row.id, body={"text": SECRETS[1]}) for row in rows],
        )
    await learn(database, tenant, [row.id for row in rows])
    return [row.id for row in rows]


async def learn(database, tenant, ids):
    async with connected(database, "worker", tenant.id) as connection:
        for identifier in ids:
            await connection.execute(
                "INSERT INTO reward (tenant, decision, revision, spec_hash, value, status, terms, "
                "final) VALUES ($1, $2, 1, $3, 1, 'scored', '{}', true)",
                *(tenant.id, identifier, bytes(32)),
            )
            await connection.execute(
                "INSERT INTO update (tenant, skill, point, snapshot, seq, decision, revision, x, "
                "action, reward_change, weight_change, weight, bucket) VALUES "
                "($1, 'search', 'depth', '0.1.0', (SELECT coalesce(max(seq), 0) + 1 FROM update), "
                "$2, 1, '{1,2}', 'deep', 1, 1, 1, 0)",
                *(tenant.id, identifier),
            )


async def everything(database, tenant):
    return "\n".join(
        [line async for line in export(database, tenant.id, unit="ann")]
        + [line async for line in export(database, tenant.id, unit="bob")]
    )


async def test_a_units_rows_are_gone_and_its_neighbours_stay(database, tenant):
    mine = await write(database, tenant, "ann")
    others = await write(database, tenant, "bob")
    before = await counts(database, tenant.id)
    done = await erase(database, tenant.id, unit="ann", reason="asked to", actor="me")
    assert sorted(done.decisions) == sorted(mine)
    assert done.rows == {"decision": 2, "event": 2, "idempotency": 4, "reward": 2}
    assert done.learned == (("search", "depth"),)
    after = await counts(database, tenant.id)
    gone = {table: before[table] - after.get(table, 0) for table in before}
    # The updates stay until another snapshot serves; the learner is asked to take them back.
    assert after["work"] == before["work"] + 2
    del gone["work"], gone["audit"]
    assert gone == {"decision": 2, "event": 2, "idempotency": 4, "reward": 2, "update": 0}
    assert after["erasure"] == 2
    async with connected(database) as connection:
        assert await find_decision(connection, tenant.id, mine[0]) is None
        assert await find_decision(connection, tenant.id, others[0]) is not None


async def test_nothing_personal_remains(database, tenant):
    await write(database, tenant, "ann", episode="talk")
    await erase(database, tenant.id, unit="ann", reason="asked to", actor="me")
    async with connected(database, "owner", tenant.id) as connection:
        left = [
            str(await connection.fetch(f"SELECT to_jsonb(r) FROM {table} AS r"))
            for table in ("decision", "event", "reward", "idempotency", "work", "erasure", "audit")
        ]
    for secret in (*SECRETS, "ann"):
        assert secret not in "".join(left)


async def test_doing_it_again_changes_nothing(database, tenant):
    ids = await write(database, tenant, "ann")
    await erase(database, tenant.id, decisions=ids, reason="asked to", actor="me")
    once = await counts(database, tenant.id)
    again = await erase(database, tenant.id, decisions=ids, reason="again", actor="me")
    assert not any(again.rows.values())
    twice = await counts(database, tenant.id)
    for table in ("audit", "work"):
        del once[table], twice[table]
    assert once == twice


async def test_ids_that_only_the_cold_store_has_are_written_down(database, tenant):
    old = new_id(1_600_000_000.0)
    done = await erase(database, tenant.id, decisions=[old], reason="asked to", actor="me")
    assert (done.decisions, done.learned) == ((old,), ())
    assert (await counts(database, tenant.id))["erasure"] == 1


async def test_events_about_the_episode_go_and_its_other_decisions_are_credited_anew(
    database, tenant
):
    (mine,) = await write(database, tenant, "ann", episode="talk", count=1)
    (other,) = await write(database, tenant, "bob", episode="talk", count=1)
    async with connected(database) as connection:
        await log_events(connection, [event(tenant.id, None, episode="talk", id="whole")])
    async with connected(database, "worker", tenant.id) as connection:
        await connection.execute("DELETE FROM work")
    await erase(database, tenant.id, unit="ann", reason="asked to", actor="me")
    async with connected(database, "app", tenant.id) as connection:
        left = [row["decision"] for row in await connection.fetch("SELECT decision FROM event")]
        assert left == [other]
        work = {row["decision"] for row in await connection.fetch("SELECT decision FROM work")}
        assert work == {mine, other}
        found = await connection.fetchrow("SELECT episode, reason FROM erasure")
        assert tuple(found) == ("talk", "asked to")


async def test_what_was_erased_is_not_written_again(database, tenant):
    row, other = decision(tenant.id, unit="ann"), decision(tenant.id, unit="bob")
    async with connected(database) as connection:
        await log_decisions(connection, [row])
        await erase(database, tenant.id, unit="ann", reason="asked to", actor="me")
        # Its signed record was sent again, in the same second.
        await log_decisions(connection, sorted([row, other], key=lambda one: one.id))
    async with connected(database, "app", tenant.id) as connection:
        assert [one["id"] for one in await connection.fetch("SELECT id FROM decision")] == [
            other.id
        ]


async def test_what_comes_back_is_swept_away(database, tenant):
    """From a backup, or from a concurrent transaction."""
    row = decision(tenant.id, unit="ann")
    async with connected(database) as connection:
        await log_decisions(connection, [row])
        await erase(database, tenant.id, unit="ann", reason="asked to", actor="me")
    async with connected(database, "owner", tenant.id) as connection:
        erased = await connection.fetch("DELETE FROM erasure RETURNING *")
    async with connected(database) as connection:
        await log_decisions(connection, [row])
        await log_events(connection, [event(tenant.id, row.id)])
    async with connected(database, "owner", tenant.id) as connection:
        await connection.execute(
            "INSERT INTO erasure VALUES ($1, $2, $3, $4, $5)", *erased[0].values()
        )
    async with connected(database, "owner", tenant.id) as connection:
        assert await sweep(connection) == {
            "decision": 1,
            "event": 1,
            "idempotency": 1,
        }
        assert await sweep(connection) == {}
    assert (await counts(database, tenant.id)).get("decision", 0) == 0


async def test_states_that_learned_of_it_go_once_another_snapshot_serves(database, tenant):
    await declare(database, tenant.id, DOCUMENT, actor="me")
    mine = await write(database, tenant, "ann")
    others = await write(database, tenant, "bob")
    state = pack_state({})
    async with connected(database, "worker", tenant.id) as connection:
        for seq in (1, 4):
            await connection.execute(
                "INSERT INTO checkpoint (tenant, skill, point, snapshot, seq, state, sha256) "
                "VALUES ($1, 'search', 'depth', '0.1.0', $2, $3, sha256($3))",
                *(tenant.id, seq, state),
            )
    await erase(database, tenant.id, unit="ann", reason="asked to", actor="me")
    async with connected(database, "owner", tenant.id) as connection:
        assert await sweep(connection) == {}  # it still serves
        for snapshot in ("0.2.0", "0.3.0"):
            await connection.execute(
                "INSERT INTO snapshot (tenant, skill, point, id, spec_hash, feature_hash, reason, "
                "state, sha256) VALUES ($1, 'search', 'depth', $2, $3, $3, 'rebuilt', $4, "
                "sha256($4))",
                *(tenant.id, snapshot, bytes(32), state),
            )
        await connection.execute("UPDATE decision_point SET snapshot = '0.3.0'")
        await connection.execute(
            "INSERT INTO checkpoint SELECT tenant, skill, point, '0.2.0', seq, state, sha256, at "
            "FROM checkpoint"
        )  # it had learned of others alone
        assert await sweep(connection) == {"checkpoint": 2, "update": 2}
        left = await connection.fetch("SELECT id FROM snapshot ORDER BY id")
        # Bases hold nothing learned, and relearning follows them.
        assert [row["id"] for row in left] == ["0.1.0", "0.2.0", "0.3.0"]
        left = await connection.fetch("SELECT decision FROM update")
        assert {row["decision"] for row in left} == set(others)
        assert not {row["decision"] for row in left} & set(mine)


async def test_export_holds_everything_about_a_unit_and_nothing_else(database, tenant):
    ids = await write(database, tenant, "ann", episode="talk")
    others = await write(database, tenant, "bob")
    async with connected(database) as connection:
        await log_events(connection, [event(tenant.id, None, episode="talk")])
    lines = [msgspec.json.decode(line) async for line in export(database, tenant.id, unit="ann")]
    tables = [line["table"] for line in lines]
    assert tables == ["decision"] * 2 + ["event"] * 3 + ["reward"] * 2 + ["update"] * 2
    assert {line["row"]["id"] for line in lines if line["table"] == "decision"} == set(
        map(str, ids)
    )
    assert lines[0]["row"]["context"] == {"question": SECRETS[0]}
    assert not any(str(other) in str(lines) for other in others)
    assert [line async for line in export(database, tenant.id, unit="nobody")] == []


async def test_another_tenants_rows_are_out_of_reach(database, tenant):
    other = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    theirs = await write(database, other, "ann")
    before = await counts(database, other.id)
    done = await erase(database, tenant.id, unit="ann", reason="asked to", actor="me")
    assert done.decisions == ()
    done = await erase(database, tenant.id, decisions=theirs, reason="asked to", actor="me")
    assert sum(done.rows.values()) == 0
    assert done.learned == ()
    assert await counts(database, other.id) == before
    assert [line async for line in export(database, tenant.id, unit="ann")] == []


async def test_it_waits_for_a_learner_that_is_at_work(database, tenant):
    await declare(database, tenant.id, DOCUMENT, actor="me")
    ids = await write(database, tenant, "ann")
    async with connected(database, "worker", tenant.id) as connection:
        await connection.execute("UPDATE learner SET seq = seq + 1")  # the fence
        erasing = asyncio.create_task(
            erase(database, tenant.id, unit="ann", reason="asked to", actor="me")
        )
        done, _ = await asyncio.wait([erasing], timeout=0.3)
        assert not done
    assert (await erasing).decisions == tuple(sorted(ids))


async def test_the_audit_tells_how_many_and_not_who(database, tenant):
    await write(database, tenant, "ann")
    await erase(database, tenant.id, unit="ann", reason="asked to", actor="me")
    async with connected(database, "app", tenant.id) as connection:
        (row,) = [row for row in await history(connection) if row.action == "data.erase"]
    assert (row.subject, row.detail["decisions"]) == ("asked to", 2)
    assert "ann" not in str(row.detail)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"unit": "a", "decisions": []},
        {"unit": "a", "reason": ""},
        {"decisions": [uuid4()]},
        {"decisions": [new_id(20_000_000_000.0)]},
    ],
)
async def test_what_is_unclear_is_refused(database, tenant, arguments):
    with pytest.raises(InputError):
        await erase(database, tenant.id, **{"reason": "r", "actor": "me", **arguments})
