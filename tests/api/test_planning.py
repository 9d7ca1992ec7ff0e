"""How long a rollout will take, asked over HTTP: what the log says, and what is given instead."""

from __future__ import annotations

from steersman.rollouts.forecast import forecast
from steersman.rollouts.plan import plan_of
from steersman.spec.loader import loads
from tests.api.points import POINT
from tests.api.rollouts import teach

ASKED = {"skill": "search", "decision": "depth", "effect": 0.05}
GIVEN = {**ASKED, "sd": 0.25, "units_per_day": 2000}


async def test_a_forecast_is_that_of_the_library(serving) -> None:
    async with serving() as s:
        answer = await s.ask("POST", "/v1/rollouts/plan", GIVEN)
        assert answer.status == 200, answer.body
        plan = plan_of(loads(POINT), salt="plan")
        wanted = forecast(plan, 0.25, 0.05, 2000.0).to_json()
        told = answer.body["forecast"]
        assert {**told, "stages": tuple(told["stages"])} == wanted
        assert answer.body["plan"]["stages"][1]["share"] == 0.05
        assert answer.body["logged"]["units"] == 0
        stages = [{"name": "canary", "share": 0.1}, {"name": "live", "share": 0.95}]
        other = await s.ask("POST", "/v1/rollouts/plan", {**GIVEN, "overrides": {"stages": stages}})
        assert [one["name"] for one in other.body["forecast"]["stages"]] == ["canary", "live"]
        assert (await s.ask("GET", "/v1/rollouts")).body == {"rollouts": []}


async def test_spread_and_traffic_are_those_of_the_log(serving, database) -> None:
    async with serving() as s:
        refused = await s.ask("POST", "/v1/rollouts/plan", ASKED)
        assert (refused.status, refused.body["code"]) == (422, "invalid")
        assert "give sd and units_per_day" in refused.body["detail"]
        await teach(s, database, 20)
        told = (await s.ask("POST", "/v1/rollouts/plan", {**ASKED, "sd": 0.3})).body
        assert told["logged"]["units"] == 20
        assert told["forecast"]["sd"] == 0.3
        assert told["forecast"]["days"] > 0


async def test_what_is_none_is_refused(serving, subtests) -> None:
    changes = [
        {"effect": 0},
        {"effect": 1.5},
        {"effect": "much"},
        {"sd": -1},
        {"sd": 0.6},
        {"units_per_day": 0},
        {"units_per_day": 1e-320},
        {"overrides": {"alpha": 2}},
        {"overrides": {"colour": "red"}},
        {"overrides": {"stages": [{"name": "canary", "share": 0.2}]}},
        {"salt": "mine"},
    ]
    async with serving() as s:
        for change in changes:
            with subtests.test(str(change)):
                answer = await s.ask("POST", "/v1/rollouts/plan", {**GIVEN, **change})
                assert (answer.status, answer.body["code"]) == (422, "invalid"), answer.body


async def test_only_who_may_read_asks_and_of_points_there_are(serving) -> None:
    async with serving() as s:
        answer = await s.ask("POST", "/v1/rollouts/plan", {**GIVEN, "decision": "width"})
        assert (answer.status, answer.body["code"]) == (404, "not_found")
        assert (await s.ask("POST", "/v1/rollouts/plan", GIVEN, key=None)).status == 401
