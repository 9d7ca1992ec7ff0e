"""A row is put together by position: what a draw and a label fill stands where a row has it."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pytest

from steersman.db.decisions import DecisionRow
from steersman.serving.arm_dispatch import Drew
from steersman.serving.arms import Drawn, Label
from steersman.serving.decision_rows import Wanted, parts_of, to_row
from steersman.serving.draw import draw_many
from steersman.serving.draw_sequence import picked_in
from steersman.serving.fallback_records import sign, verify
from steersman.wire import DecideRequest, write
from tests.api.rollouts import TENANT, serving
from tests.api.test_mixed import SPEC
from tests.db.rows import decision

AT = datetime(2026, 1, 2, tzinfo=UTC)


def _row(label: Label) -> DecisionRow:
    served = serving(seq=3)
    request = DecideRequest("search", "depth", {"intent": "refund"}, unit="u", episode_id="e")
    (drawn,) = draw_many([(served, request, request.context)], np.random.default_rng(0))
    assert isinstance(drawn, Drawn)
    wanted = Wanted(TENANT, served, request, b"hash", "trace", 0.0)
    drew = Drew(drawn, served, label)
    return to_row(wanted, request.context, drew, identifier=UUID(int=9), at=AT)


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
    start, later = DecisionRow._fields.index("eligible"), Drawn._fields[-2:]
    assert DecisionRow._fields[start : start + len(Drawn._fields) - 2] == Drawn._fields[:-2]
    assert DecisionRow._fields[-2:] == later == ("links", "steps")
    assert (row.links, row.steps) == (None, None)


def test_a_record_gives_the_same_numbers_back() -> None:
    row = _row(Label())
    again = verify(b"s" * 32, TENANT, sign(b"s" * 32, row))
    assert again.x == row.x
    assert again._replace(x=None) == row._replace(x=None, body_hash=None)


@pytest.mark.parametrize(
    "action", ["[" * 2000, '["\\ud800"]', '{"k":"\\ud800"}', '{"k":1e999}', "[1", "plain"]
)
def test_whatever_a_client_answered_itself_can_be_told(action) -> None:
    row = decision(TENANT, action=action)
    assert picked_in(row) == [action]
    assert parts_of(row, SPEC) is None
    assert write([picked_in(row), parts_of(row, SPEC)])
