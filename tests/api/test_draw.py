"""Points that are alike are drawn together; each gets what it would draw alone, to the bit."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from steersman.serving.draw import draw_many
from steersman.serving.pending_decision import PendingDecision, PointRequest
from steersman.wire import DecideRequest, Refused
from tests.api.rollouts import TENANT, serving

LIKES = ("shallow", "deep", "", "deep")


def _asked(points, count):
    contexts = [{"intent": f"i{n % 3}"} for n in range(count)]
    requests = [DecideRequest("search", "depth", context, unit="u") for context in contexts]
    chosen = [points[n % len(points)] for n in range(count)]
    return [
        (point, PointRequest(TENANT, point, request, request.context))
        for point, request in zip(chosen, requests, strict=True)
    ]


def test_points_of_many_tenants_are_drawn_together() -> None:
    points = [serving(likes=likes) for likes in LIKES]
    assert len({point.likeness for point in points}) == 1
    asked = _asked(points, 31)
    found = draw_many(asked, np.random.default_rng(0))
    for (point, one), drawn in zip(asked, found, strict=True):
        assert isinstance(drawn, PendingDecision)
        (alone,) = draw_many([(point, one)], np.random.default_rng(1))
        assert isinstance(alone, PendingDecision)
        same = {*PendingDecision.__struct_fields__} - {"action", "p", "u"}
        assert all(getattr(drawn, name) == getattr(alone, name) for name in same)
        exact = point.replica.policy.distribution(np.array(drawn.x, np.float64))
        assert drawn.p == exact[point.names.index(drawn.action)]
        assert (drawn.u < exact[0]) == (drawn.action == "shallow")


def test_a_bad_context_costs_nobody_else_his_draw() -> None:
    points = [serving(likes=likes) for likes in LIKES]
    asked = _asked(points, 12)
    point, one = asked[5]
    asked[5] = (point, replace(one, context={"unknown": 1}))
    found = draw_many(asked, np.random.default_rng(0))
    assert [n for n, one in enumerate(found) if not isinstance(one, PendingDecision)] == [5]
    assert isinstance(found[5], Refused)


def test_what_nobody_can_score_by_rows_has_a_likeness_of_its_own() -> None:
    points = [serving(likes="deep") for _ in range(2)]
    for point in points:
        point.replica.policy.add_action("new", explore=5, share=0.2)
    assert [point.likeness for point in points] == points
    found = draw_many(_asked(points, 6), np.random.default_rng(0))
    assert all(isinstance(one, PendingDecision) for one in found)
