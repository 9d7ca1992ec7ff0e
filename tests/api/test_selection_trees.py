"""A sequence point that serves trees: published as a candidate, rolled out, explained, kept."""

from __future__ import annotations

import pytest

from steersman.db.declarations import declare
from steersman.db.erasure import erase
from steersman.errors import InputError, StateError
from steersman.learning.rebuild import rebuild
from steersman.points.policy_factory import initial_policy
from steersman.policies.tree_scorer import TreeScorer
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from steersman.snapshots.reproduce import reproduce
from steersman.wire import new_id
from tests.api.shipping import Shipping
from tests.api.test_selections import (
    SELECT,
    bridge,
    decide,
    explained,
    point_of,
    reward,
)

TREES = SELECT.replace("sequence_linear", "sequence_trees").replace(
    "temperature: 0.1", "temperature: 1.0"
) + "learning: {mode: frozen}\n"  # fmt: skip


async def test_trees_are_published_promoted_served_and_explained(serving, database, tenant):
    row = await declare(database, tenant.id, TREES, actor="test")
    declared = initial_policy(row.spec)
    by_title = TreeScorer.of_stumps(len(declared.form.columns), [(1, 0.5, -6.0, 6.0)])
    async with serving() as s:
        (first,) = await decide(s)
        ships = Shipping(database, tenant.id, tenant.name, s.home)
        ships.point = lambda: point_of(database, tenant)
        why = Reason(actor="test")
        trees = declared.holding(by_title)
        made = await publish(database, row, ships.publisher, why, trained=trees)
        assert (made.algorithm, made.evidence["trained"]) == ("sequence_trees", True)
        await erase(
            database, tenant.id, decisions=[gone := new_id()], reason="asked to", actor="me"
        )  # fmt: skip
        with pytest.raises(InputError, match=r"1 of its 2 training selections were erased"):
            await publish(
                database, row, ships.publisher, why,
                trained=declared.holding(TreeScorer.of_stumps(by_title.columns, [(0, 0, 0, 1)])),
                grown_from=[gone, new_id()],
            )  # fmt: skip
        again = await publish(database, row, ships.publisher, why, trained=trees)
        assert again.version == made.version
        assert (await ships.publish()).version != made.version, "the line holds no trees"
        await ships.serve(made.version)
        await s.until(lambda: s.replica("evidence", "select").snapshot == made.version)
        decided = await decide(s, 30)
        titled = [one["picked"][:1] == ["p2"] for one in decided]
        assert sum(titled) > 15
        for one in (first, decided[0]):
            told = await explained(s, one["decision_id"])
            assert told["recomputed"]["same"] is True, told["recomputed"]
        await reward(s, decided, bridge)
        assert s.replica("evidence", "select").seq == 0
        home = s.home
    async with serving(home=home) as s:
        (one,) = await decide(s)
        assert one["snapshot"] == made.version
    row = await point_of(database, tenant)
    with pytest.raises(StateError, match="trained in one batch from the log"):
        await reproduce(database, tenant.id, "evidence", "select", made.version)
    with pytest.raises(InputError, match="trained from the log"):
        await rebuild(database, row, actor="test")


async def test_what_retracted_trees_decided_is_explained_by_their_own_bytes(
    serving, database, tenant
):
    row = await declare(database, tenant.id, TREES, actor="test")
    declared = initial_policy(row.spec)
    by_title = TreeScorer.of_stumps(len(declared.form.columns), [(1, 0.5, -6.0, 6.0)])
    async with serving() as s:
        await decide(s)
        ships = Shipping(database, tenant.id, tenant.name, s.home)
        ships.point = lambda: point_of(database, tenant)
        made = await publish(
            database, row, ships.publisher, Reason(actor="test"), trained=declared.holding(by_title)
        )
        await ships.serve(made.version)
        await s.until(lambda: s.replica("evidence", "select").snapshot == made.version)
        (one,) = await decide(s)
        connection = await database.connect(None)
        told = []
        for change in ("retracted_at = now()", "state = NULL"):
            await connection.execute(
                f"UPDATE steersman.snapshot SET {change} WHERE tenant = $1 AND id = $2",
                tenant.id,
                made.version,
            )
            told.append((await explained(s, one["decision_id"]))["recomputed"])
        await connection.close()
    assert told[0]["same"] is True, told
    assert "retracted" in told[1]["reason"]


async def test_what_was_trained_for_something_else_is_refused(serving, database, tenant):
    row = await declare(database, tenant.id, TREES, actor="test")
    async with serving() as s:
        ships = Shipping(database, tenant.id, tenant.name, s.home)
        other = type(initial_policy(row.spec))(features=["fused"], max_steps=3, floor=0.2)
        why = Reason(actor="test")
        with pytest.raises(InputError, match="does not match evidence/select"):
            await publish(database, row, ships.publisher, why, trained=other)
