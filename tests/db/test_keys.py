"""API keys: creation, lookup by hash, expiry and rotation."""

from __future__ import annotations

import asyncio
import math
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from steersman.db.audit import history
from steersman.db.keys import ROLES, create_key, find_keys, list_keys, revoke_key, rotate_key
from steersman.db.secret import hash_key
from steersman.errors import InputError, StoreError
from steersman.platform.postgres.database import as_tenant

SECRET = b"s" * 32


async def found(database, *texts):
    connection = await database.connect("app")
    try:
        hashes = [hash_key(SECRET, text) for text in texts]
        rows = await find_keys(connection, hashes)
        return [rows.get(value) for value in hashes]
    finally:
        await connection.close()


async def test_a_key_is_found_by_its_text_and_has_its_scopes(database, tenant):
    row, text = await create_key(
        database, tenant.id, secret=SECRET, name="web", role="application", actor="me"
    )
    assert (row.tenant, row.name, row.role) == (tenant.id, "web", "application")
    assert row.scopes == ROLES["application"]
    assert text.startswith(row.prefix)
    assert await found(database, text, text + "x", "") == [row, None, None]


async def test_keys_hold_256_bits(database, tenant):
    texts = [
        (await create_key(database, tenant.id, secret=SECRET, name="k", actor="me"))[1]
        for _ in range(8)
    ]
    assert len(set(texts)) == 8
    assert all(re.fullmatch("sk_[0-9A-Za-z]{43}", text) for text in texts)
    assert 43 * math.log2(62) > 256


async def test_no_table_holds_the_text(database, tenant):
    _, text = await create_key(database, tenant.id, secret=SECRET, name="k", actor="me")
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        keys = await connection.fetch("SELECT * FROM api_key")
        audit = await connection.fetch("SELECT * FROM audit")
    await connection.close()
    assert text not in f"{keys} {audit}"
    assert text[11:] not in f"{keys} {audit}"


async def test_the_hash_needs_the_secret(database, tenant):
    _, text = await create_key(database, tenant.id, secret=b"t" * 32, name="k", actor="me")
    assert await found(database, text) == [None]


async def test_a_revoked_key_is_refused_and_listeners_hear_of_it(database, tenant):
    row, text = await create_key(database, tenant.id, secret=SECRET, name="k", actor="me")
    connection = await database.connect("app")
    heard = asyncio.Queue()
    await connection.add_listener("steersman_key", lambda *call: heard.put_nowait(call[3]))
    revoked = await revoke_key(database, tenant.id, row.id, actor="me")
    assert await asyncio.wait_for(heard.get(), 10) == f"{tenant.id}/{row.id}"
    assert not revoked.active(datetime.now(UTC) + timedelta(seconds=1))
    assert await found(database, text) == [None]
    assert await revoke_key(database, tenant.id, row.id, actor="me") == revoked
    await connection.close()


async def test_an_expired_key_is_refused(database, tenant):
    ends = datetime.now(UTC) + timedelta(seconds=0.3)
    row, text = await create_key(
        database, tenant.id, secret=SECRET, name="k", expires_at=ends, actor="me"
    )
    assert row.expires_at == ends
    assert row.active(ends - timedelta(seconds=0.1))
    assert not row.active(ends)
    await asyncio.sleep(0.4)
    assert await found(database, text) == [None]


async def test_a_rotated_key_is_good_for_its_grace_and_then_refused(database, tenant):
    old, old_text = await create_key(
        database, tenant.id, secret=SECRET, name="k", scopes=["read"], actor="me"
    )
    new, new_text = await rotate_key(
        database, tenant.id, old.id, secret=SECRET, grace_s=60, actor="me"
    )
    assert (new.rotated_from, new.role, new.scopes) == (old.id, "custom", ("read",))
    both = await found(database, old_text, new_text)
    assert [row.id for row in both] == [old.id, new.id]
    end = both[0].revoked_at
    assert both[0].active(end - timedelta(seconds=1))
    assert not both[0].active(end)

    newest, newest_text = await rotate_key(
        database, tenant.id, new.id, secret=SECRET, grace_s=0, actor="me"
    )
    assert [row and row.id for row in await found(database, new_text, newest_text)] == [
        None,
        newest.id,
    ]
    with pytest.raises(StoreError, match="revoked or expired"):
        await rotate_key(database, tenant.id, new.id, secret=SECRET, actor="me")


async def test_a_key_is_rotated_once(database, tenant):
    """A second rotation would create a key that is lost."""
    old, _ = await create_key(database, tenant.id, secret=SECRET, name="k", actor="me")
    both = await asyncio.gather(
        *[rotate_key(database, tenant.id, old.id, secret=SECRET, actor="me") for _ in range(2)],
        return_exceptions=True,
    )
    refused = [one for one in both if isinstance(one, StoreError)]
    assert len(refused) == 1
    assert "was already rotated" in str(refused[0])
    with pytest.raises(StoreError, match="rotate its replacement"):
        await rotate_key(database, tenant.id, old.id, secret=SECRET, actor="me")
    keys = await list_keys(database, tenant.id)
    assert [row.revoked_at is None for row in keys] == [False, True]


async def test_revoking_ends_a_grace(database, tenant):
    old, text = await create_key(database, tenant.id, secret=SECRET, name="k", actor="me")
    await rotate_key(database, tenant.id, old.id, secret=SECRET, grace_s=60, actor="me")
    await revoke_key(database, tenant.id, old.id, actor="me")
    assert await found(database, text) == [None]


async def test_every_act_is_in_the_audit(database, tenant):
    row, _ = await create_key(database, tenant.id, secret=SECRET, name="k", actor="ann")
    new, _ = await rotate_key(database, tenant.id, row.id, secret=SECRET, actor="bob")
    await revoke_key(database, tenant.id, new.id, actor="cid")
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        acts = [(act.actor, act.action, act.subject) for act in await history(connection)]
    await connection.close()
    assert acts == [
        ("cid", "key.revoke", str(new.id)),
        ("bob", "key.rotate", str(new.id)),
        ("ann", "key.create", str(row.id)),
        ("test", "tenant.create", tenant.name),
    ]


async def test_keys_are_listed_without_their_hashes(database, tenant):
    rows = [
        (await create_key(database, tenant.id, secret=SECRET, name=name, actor="me"))[0]
        for name in "abcdefghijkl"  # some within a millisecond, whose ids are in no order
    ]
    assert await list_keys(database, tenant.id) == rows
    assert "hash" not in repr(rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"role": "god"}, "allowed are application, observer, operator"),
        ({"scopes": ["read", "fly"]}, "allowed are one or more of decide"),
        ({"scopes": []}, "one or more"),
        ({"name": ""}, "1 to 100"),
        ({"name": "a\nb"}, "printable"),
        ({"expires_at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001
    ],
)
async def test_wrong_arguments_are_told(database, tenant, arguments, message):
    with pytest.raises(InputError, match=message):
        await create_key(
            database, tenant.id, **{"secret": SECRET, "name": "k", "actor": "me", **arguments}
        )


async def test_unknown_tenants_and_keys_are_told(database, tenant):
    with pytest.raises(StoreError, match="tenant not found"):
        await create_key(database, uuid4(), secret=SECRET, name="k", actor="me")
    with pytest.raises(StoreError, match="key not found"):
        await revoke_key(database, tenant.id, uuid4(), actor="me")
    with pytest.raises(InputError, match="0 to 2,592,000"):
        await rotate_key(database, tenant.id, uuid4(), secret=SECRET, grace_s=-1, actor="me")
