"""A stored declaration that cannot be read: it is told, and everything else is served as usual."""

from __future__ import annotations

from steersman.db.declarations import declare
from steersman.platform.postgres.database import as_tenant
from tests.api.points import POINT
from tests.api.rollouts import DECIDE, until
from tests.api.test_serving_rollouts import prepared

WIDTH = {**DECIDE, "decision": "width"}


async def spoil(database, tenant):
    """Make the text of one point what another version might have stored."""
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, tenant.id):
            await connection.execute(
                "UPDATE spec SET document = document || 'sails: 3\n' WHERE point = 'width'"
            )
    finally:
        await connection.close()


async def test_what_was_loaded_goes_on_and_the_others_are_brought_up_to_date(
    database, tenant, serving
) -> None:
    async with serving() as s:
        assert (await s.ask("POST", "/v1/decide", DECIDE)).status == 200
        document = POINT.replace("depth", "width")
        await declare(database, tenant.id, document, actor="test")
        await s.until(lambda: s.service.replicas.find(tenant.id, "search", "width") is not None)
        before = (await s.ask("POST", "/v1/decide", WIDTH)).body
        await spoil(database, tenant)
        await s.until(lambda: s.service.replicas.problem(tenant.id, "search", "width") != "")
        answer = await s.ask("POST", "/v1/decide", WIDTH)
        assert (answer.status, answer.body["snapshot"]) == (200, before["snapshot"])
        changed = POINT.replace("floor: 0.02", "floor: 0.05")
        await declare(database, tenant.id, changed, actor="test")
        await s.until(lambda: _snapshot(s, tenant) == "0.2.0")
        mended = await declare(database, tenant.id, document, actor="test")
        assert mended.snapshot == before["snapshot"]
        await s.until(lambda: s.service.replicas.problem(tenant.id, "search", "width") == "")


def _snapshot(s, tenant):
    return s.service.replicas.find(tenant.id, "search", "depth").replica.snapshot


async def test_a_process_that_starts_serves_the_others_and_takes_no_event_unscrubbed(
    database, tenant, serving
) -> None:
    async with serving() as s:
        await declare(database, tenant.id, POINT.replace("depth", "width"), actor="test")
        await spoil(database, tenant)
        home = s.home
    async with serving(home=home) as s:
        made = await s.ask("POST", "/v1/decide", DECIDE)
        assert (made.status, made.body["degraded"]) == (200, False)
        refused = await s.ask("POST", "/v1/decide", WIDTH)
        assert refused.status == 503
        assert "cannot read the declaration of search/width" in refused.body["detail"]
        event = {
            "event_id": "e-1",
            "decision_id": made.body["decision_id"],
            "type": "feedback.submit",
            "outcomes": {"clicked": 1.0},
        }
        unknown = await s.ask("POST", "/v1/feedback.submit", event)
        assert unknown.status == 503
        assert "personal-data rules for events" in unknown.body["detail"]
        await declare(database, tenant.id, POINT.replace("depth", "width"), actor="test")
        await s.until(lambda: s.service.replicas.problems() == 0)
        assert (await s.ask("POST", "/v1/feedback.submit", event)).status == 200


async def test_the_status_and_the_versions_of_all_points_are_shown(
    database, tenant, serving
) -> None:
    async with serving() as s:
        await declare(database, tenant.id, POINT.replace("depth", "width"), actor="test")
        await spoil(database, tenant)
        depth, width = (await s.ask("GET", "/rl-status")).body["points"]
        assert (depth["decision"], depth["algorithm"]) == ("depth", "lin_ucb")
        assert "problem" not in depth
        assert (width["decision"], width["snapshot"]) == ("width", "0.1.0")
        assert (width["algorithm"], width["learning"]) == (None, None)
        assert "sails" in width["problem"]
        assert "steersman tenant declare" in width["problem"]
        shown = (await s.ask("GET", "/v1/snapshots")).body["snapshots"]
        told = [(one["decision"], one["version"], one["roles"]) for one in shown]
        assert told == [("depth", "0.1.0", ["serving"]), ("width", "0.1.0", ["serving"])]


async def test_a_control_whose_declaration_cannot_be_read_leaves_the_others_alone(
    database, tenant, serving
) -> None:
    async with serving() as s:
        changed = POINT.replace("floor: 0.02", "floor: 0.05")
        await declare(database, tenant.id, changed, actor="test")
        ships, version = await prepared(s, database, tenant)
        await ships.start(version, "canary", 0.05)
        await until(s, stage="canary")
        owner = await database.connect("owner")
        async with as_tenant(owner, tenant.id):
            await owner.execute("UPDATE rollout SET control = '0.1.0'")
            await owner.execute(
                "UPDATE spec SET document = document || 'sails: 3\n' WHERE hash = "
                "(SELECT spec_hash FROM snapshot WHERE id = '0.1.0')"
            )
        await owner.close()
        await declare(database, tenant.id, POINT.replace("depth", "width"), actor="test")
        await s.until(lambda: s.service.replicas.find(tenant.id, "search", "width") is not None)
        assert (await s.ask("POST", "/v1/decide", DECIDE)).status == 200
        problem = s.service.replicas.problem(tenant.id, "search", "depth")
        assert "control 0.1.0 of the rollout of search/depth" in problem
