"""Declarations: new snapshots, kept snapshots and notifications."""

from __future__ import annotations

import asyncio

import pytest

from steersman.db.audit import history
from steersman.db.declarations import declare
from steersman.db.derived_snapshots import hold_view
from steersman.db.points import find_declared, points_as_they_are, points_of
from steersman.errors import InputError, SpecError
from steersman.features import FeatureMap, feature_map
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import unpack_state

DOCUMENT = """
format: 1
skill: search
decision: depth
context: {dim: 8, fields: {length: {type: number, mean: 3, sd: 2}}}
actions: {kind: choice, names: [shallow, deep]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {rules: [], otherwise: shallow}
reward: {terms: {clicked: {weight: 1}}}
"""


async def points(database, tenant):
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            return await points_of(connection, tenant.id)
    finally:
        await connection.close()


async def rows(database, tenant, query):
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            return await connection.fetch(query)
    finally:
        await connection.close()


async def test_a_new_point_begins_with_a_snapshot_that_learned_nothing(database, tenant):
    row = await declare(database, tenant.id, DOCUMENT, actor="me")
    assert (row.skill, row.point, row.snapshot, row.per_episode) == (
        "search",
        "depth",
        "0.1.0",
        False,
    )
    assert await points(database, tenant) == [row]
    (snapshot,) = await rows(database, tenant, "SELECT * FROM snapshot")
    policy = load_policy(unpack_state(snapshot["state"]))
    assert (policy.actions, policy.updates, policy.floor) == (("shallow", "deep"), 0, 0.02)
    (learner,) = await rows(database, tenant, "SELECT * FROM learner")
    assert (learner["epoch"], learner["snapshot"], learner["seq"]) == (0, "0.1.0", 0)


async def test_the_same_declaration_again_changes_nothing(database, tenant):
    first = await declare(database, tenant.id, DOCUMENT, actor="me")
    again = await declare(database, tenant.id, "# a comment\n" + DOCUMENT, actor="me")
    assert again == first
    assert (
        len(await rows(database, tenant, "SELECT FROM audit WHERE action = 'point.declare'")) == 1
    )


@pytest.mark.parametrize(
    ("before", "after", "snapshot"),
    [
        ("weight: 1}", "weight: 2}", "0.1.0"),
        ("otherwise: shallow", "otherwise: deep", "0.1.0"),
        ("names: [shallow, deep]", "names: [shallow, deep, deeper]", "0.2.0"),
        ("algorithm: lin_ucb", "algorithm: lin_ts", "1.0.0"),
        ("dim: 8", "dim: 16", "0.2.0"),
        ("floor: 0.02", "floor: 0.05", "0.2.0"),
    ],
)
async def test_what_a_state_depends_on_begins_anew(database, tenant, before, after, snapshot):
    first = await declare(database, tenant.id, DOCUMENT, actor="me")
    second = await declare(database, tenant.id, DOCUMENT.replace(before, after), actor="me")
    assert second.spec_hash != first.spec_hash
    assert second.snapshot == snapshot
    (learner,) = await rows(database, tenant, "SELECT * FROM learner")
    assert learner["snapshot"] == snapshot
    assert learner["epoch"] == (snapshot != "0.1.0")


async def test_going_back_begins_a_third_time(database, tenant):
    changed = DOCUMENT.replace("dim: 8", "dim: 16")
    found = [
        await declare(database, tenant.id, text, actor="me")
        for text in (DOCUMENT, changed, DOCUMENT)
    ]
    assert [row.snapshot for row in found] == ["0.1.0", "0.2.0", "0.3.0"]
    assert found[2].spec_hash == found[0].spec_hash


async def test_two_who_declare_at_once_take_turns(database, tenant):
    texts = [DOCUMENT.replace("dim: 8", f"dim: {8 + n}") for n in range(6)]
    await asyncio.gather(*(declare(database, tenant.id, text, actor="me") for text in texts))
    found = await rows(database, tenant, "SELECT id FROM snapshot ORDER BY id")
    assert [row["id"] for row in found] == [f"0.{n}.0" for n in range(1, 7)]


async def test_listeners_and_the_audit_hear_of_it(database, tenant):
    connection = await database.connect("app")
    heard = asyncio.Queue()
    await connection.add_listener("steersman_point", lambda *call: heard.put_nowait(call[3]))
    await declare(database, tenant.id, DOCUMENT, actor="ann")
    assert await asyncio.wait_for(heard.get(), 10) == f"{tenant.id}/search/depth"
    async with as_tenant(connection, tenant.id):
        latest = (await history(connection))[0]
    assert (latest.actor, latest.action, latest.subject) == ("ann", "point.declare", "search/depth")
    await connection.close()


@pytest.mark.parametrize(
    ("before", "after", "error", "message"),
    [
        ("floor: 0.02", "floor: 2", SpecError, "declaration:8: floor"),
        (", mean: 3, sd: 2", "", InputError, "reads number fields length"),
        (
            "{kind: choice, names: [shallow, deep]}",
            "{kind: sequence, max_steps: 3}",
            SpecError,
            "does not support sequence actions",
        ),
    ],
)
async def test_what_cannot_be_served_is_refused(database, tenant, before, after, error, message):
    text = DOCUMENT.replace(before, after)
    if "sequence" in after:
        text = text.replace("otherwise: shallow", "otherwise: first")
    with pytest.raises(error, match=message):
        await declare(database, tenant.id, text, actor="me")
    assert await points(database, tenant) == []


async def unreadable(database, tenant, point="depth"):
    """Store a declaration that only another version could read."""
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, tenant.id):
            await connection.execute(
                "UPDATE spec SET document = document || 'sails: 3\n' WHERE point = $1", point
            )
    finally:
        await connection.close()


async def test_a_point_that_cannot_be_read_is_told_and_the_others_are_there(database, tenant):
    await declare(database, tenant.id, DOCUMENT, actor="me")
    await declare(database, tenant.id, DOCUMENT.replace("depth", "width"), actor="me")
    await unreadable(database, tenant)
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, tenant.id):
            (row,), (broken,) = await points_as_they_are(connection, tenant.id)
            assert (row.point, broken.point, broken.snapshot) == ("width", "depth", "0.1.0")
            assert "sails" in broken.why
            assert "steersman tenant declare" in broken.why
            with pytest.raises(
                SpecError, match="cannot read the declaration of search/depth: declaration:"
            ):
                await points_of(connection, tenant.id)
            found = await find_declared(connection, (tenant.id, "search", "width"))
            assert found == row
            assert await find_declared(connection, (tenant.id, "search", "speed")) is None
        async with connection.transaction():
            assert await hold_view(connection, (tenant.id, "search", "width")) == row
    finally:
        await connection.close()


async def test_declaring_the_same_again_mends_what_cannot_be_read(database, tenant):
    first = await declare(database, tenant.id, DOCUMENT, actor="me")
    await unreadable(database, tenant)
    assert await declare(database, tenant.id, DOCUMENT, actor="me") == first
    assert await points(database, tenant) == [first]


async def test_mending_and_another_layout_of_features_take_one_declaration(
    database, tenant, monkeypatch
):
    first = await declare(database, tenant.id, DOCUMENT, actor="me")
    await unreadable(database, tenant)
    monkeypatch.setattr(feature_map, "_CHANGED", dict.fromkeys(("text", "category", "number"), 99))
    row = await declare(database, tenant.id, DOCUMENT, actor="me")
    assert (row.spec_hash, row.snapshot) == (first.spec_hash, "0.2.0")
    assert row.feature_hash == bytes.fromhex(FeatureMap(row.spec.context).hash)
    assert row.feature_hash != first.feature_hash
    assert await points(database, tenant) == [row]


async def test_declaring_something_else_begins_anew_after_what_cannot_be_read(database, tenant):
    await declare(database, tenant.id, DOCUMENT, actor="me")
    await unreadable(database, tenant)
    row = await declare(database, tenant.id, DOCUMENT.replace("0.02", "0.05"), actor="me")
    assert row.snapshot == "0.2.0"
    assert await points(database, tenant) == [row]
    made = await rows(database, tenant, "SELECT id, parent FROM snapshot ORDER BY id")
    assert [tuple(one) for one in made] == [("0.1.0", None), ("0.2.0", "0.1.0")]
