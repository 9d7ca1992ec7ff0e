"""The fast row codec equals asyncpg's encoding."""

from array import array
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from msgspec.structs import replace

from steersman.db.decisions import REPEATED_COLUMNS, DecisionRow, connect_writer, log_decisions
from steersman.errors import StoreError
from steersman.platform.postgres import bulk_encoder
from steersman.platform.postgres.database import as_tenant
from steersman.wire import new_id

_SELECT = "SELECT t::text AS t, t.id FROM decision AS t"
_COLUMNS = (
    "SELECT attname FROM pg_attribute WHERE attrelid = 'decision'::regclass AND attnum > 0 "
    "AND NOT attisdropped ORDER BY attnum"
)
AT = datetime(2026, 3, 1, 12, 30, 0, 123457, tzinfo=UTC)
BARE = {
    "episode": None,
    "parent": None,
    "unit": None,
    "rollout": None,
    "eligible": None,
    "x": None,
    "key": None,
    "features": None,
    "u": None,
    "idempotency_key": None,
    "body_hash": None,
    "traceparent": None,
}
FULL = {
    "episode": "e-1",
    "parent": new_id(),
    "unit": "ü",
    "rollout": "r",
    "eligible": ["a", "größer", ""],
    "x": [0.5, -2.0],
    "key": "k",
    "features": [1.0, 2.0, 3.0],
    "u": 0.1,
    "idempotency_key": "key",
    "body_hash": b"\x00\xff" * 8,
    "traceparent": "00-1-2-01",
}


def decision(tenant, **columns):
    return DecisionRow(
        tenant=tenant,
        id=new_id(),
        skill="s",
        point="p",
        stage="live",
        arm="control",
        snapshot="0.1.0",
        update_seq=2**40,
        spec_hash=b"s" * 32,
        feature_hash=b"f" * 32,
        context={"ä": [1, 2.5, None, True, {"b": "c"}]},
        distribution=[0.25, 0.75],
        action="a",
        p=0.1,
        p_kind="exact",
        degraded=False,
        weight=0.1,
        at=AT,
        window_ends=AT + timedelta(days=400),
        **columns,
    )


async def rows_of(database, tenant, connect, rows):
    connection = await connect(database)
    try:
        await log_decisions(connection, rows)
        async with as_tenant(connection, tenant):
            found = await connection.fetch(_SELECT)
        return {row["id"]: row["t"] for row in found}
    finally:
        await connection.close()


async def plain(database):
    return await database.connect("app")


async def test_fields_of_a_row_are_the_columns_of_the_table(database):
    connection = await plain(database)
    try:
        columns = [name for (name,) in await connection.fetch(_COLUMNS)]
        assert DecisionRow.__struct_fields__ == tuple(columns)
        assert set(REPEATED_COLUMNS) < set(columns)
        with pytest.raises(StoreError, match="this version of the service writes id, tenant"):
            await bulk_encoder.register(connection, "decision", ("id", "tenant", *columns[2:]))
    finally:
        await connection.close()


@pytest.mark.parametrize("columns", [BARE, FULL])
async def test_decisions_are_the_same_rows(database, tenant, columns):
    first = decision(tenant.id, **columns)
    second = replace(first, id=new_id(), idempotency_key=None)
    await rows_of(database, tenant.id, connect_writer, [first])
    told = await rows_of(database, tenant.id, plain, [second])
    ours = told[first.id].replace(str(first.id), str(second.id)).replace(",key,", ",,")
    assert ours == told[second.id]


async def test_rows_that_share_some_columns_are_the_same_rows(database, tenant):
    many = [
        decision(tenant.id, **BARE),
        decision(tenant.id, **{**FULL, "idempotency_key": None, "body_hash": None}),
        decision(tenant.id, **{**BARE, "x": array("f", [0.25, -1.0]), "unit": "u"}),
        decision(tenant.id, **{**BARE, "x": [0.1] * 20, "features": array("f", [0.5] * 9)}),
        replace(decision(tenant.id, **BARE), action="b", at=AT + timedelta(days=1), x=[]),
    ]
    for rows in (many, many[2:3] * 3, [many[1], many[2]], [many[3]] * 2):
        mine = [replace(row, id=new_id()) for row in rows]
        other = [replace(row, id=new_id()) for row in mine]
        await rows_of(database, tenant.id, connect_writer, mine)
        told = await rows_of(database, tenant.id, plain, other)
        for one, same in zip(mine, other, strict=True):
            assert told[one.id].replace(str(one.id), str(same.id)) == told[same.id]


@pytest.mark.parametrize("wrong", [{"action": 7}, {"spec_hash": 7}, {"at": "now"}, {"parent": "x"}])
async def test_a_value_of_another_type_is_an_error_and_not_a_row(database, tenant, wrong):
    row = replace(decision(tenant.id, **BARE), **wrong)
    connection = await connect_writer(database)
    try:
        with pytest.raises((TypeError, asyncpg.DataError)):
            await log_decisions(connection, [row])
        async with as_tenant(connection, tenant.id):
            assert await connection.fetchval("SELECT count(*) FROM decision") == 0
    finally:
        await connection.close()
