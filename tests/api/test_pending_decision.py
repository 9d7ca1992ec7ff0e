"""A pending decision fills every column of its row, and a record gives the row back."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pytest
from msgspec.structs import replace

from steersman.db.decisions import DecisionRow
from steersman.serving.arms import Label
from steersman.serving.decision_answer import parts_of, picked_in
from steersman.serving.draw import draw_many
from steersman.serving.fallback_records import sign, verify
from steersman.serving.pending_decision import PendingDecision, PointRequest
from steersman.wire import DecideRequest, write
from tests.api.rollouts import TENANT, serving
from tests.api.test_mixed import SPEC
from tests.db.rows import decision

AT = datetime(2026, 1, 2, tzinfo=UTC)


def _row(label: Label) -> DecisionRow:
    served = serving(seq=3)
    request = DecideRequest("search", "depth", {"intent": "refund"}, unit="u", episode_id="e")
    asked = PointRequest(TENANT, served, request, request.context, b"hash", "trace")
    (drawn,) = draw_many([(served, asked)], np.random.default_rng(0))
    assert isinstance(drawn, PendingDecision)
    drawn.label = label
    drawn.identify(UUID(int=9), AT)
    return drawn.row


def test_every_column_is_in_its_place() -> None:
    row = _row(Label("r", "ab", "candidate"))
    assert (row.tenant, row.id, row.skill, row.point) == (TENANT, UUID(int=9), "search", "depth")
    assert (row.episode, row.parent, row.unit) == ("e", None, "u")
    assert (row.rollout, row.stage, row.arm) == ("r", "ab", "candidate")
    assert (row.snapshot, row.update_seq) == ("0.1.0", 3)
    assert row.context == {"intent": "refund"}
    assert (row.eligible, row.p_kind, row.degraded, row.weight) == (None, "exact", False, 1.0)
    assert abs(row.p - row.distribution[("shallow", "deep").index(row.action)]) < 1e-7
    assert isinstance(row.x, array)
    assert len(row.x) == 8
    assert (row.idempotency_key, row.body_hash, row.traceparent) == (None, b"hash", "trace")
    assert (row.at, row.window_ends > AT) == (AT, True)
    assert (row.links, row.steps) == (None, None)


def test_drawn_columns_of_a_decision_are_those_of_its_row() -> None:
    drawn = set(PendingDecision.__struct_fields__) & set(DecisionRow.__struct_fields__)
    assert drawn == {
        *("action", "p", "distribution", "p_kind", "eligible", "x", "key", "features", "u"),
        *("degraded", "weight", "links", "steps", "arm"),
    }


def test_a_record_gives_the_same_numbers_back() -> None:
    row = _row(Label())
    again = verify(b"s" * 32, TENANT, sign(b"s" * 32, row))
    assert again.x == row.x
    assert replace(again, x=None) == replace(row, x=None, body_hash=None)


@pytest.mark.parametrize(
    "action", ["[" * 2000, '["\\ud800"]', '{"k":"\\ud800"}', '{"k":1e999}', "[1", "plain"]
)
def test_whatever_a_client_answered_itself_can_be_told(action) -> None:
    row = decision(TENANT, action=action)
    assert picked_in(row) == [action]
    assert parts_of(row, SPEC) is None
    assert write([picked_in(row), parts_of(row, SPEC)])
