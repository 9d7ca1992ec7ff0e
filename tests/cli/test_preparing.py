"""What `up` finds in a home stays as it is; only what is missing is made."""

from __future__ import annotations

from uuid import uuid4

import pytest

from steersman.cli.stack import prepare
from steersman.db.declarations import declare
from steersman.features import feature_map
from tests.db.test_points import DOCUMENT


async def test_what_was_declared_since_is_not_overwritten(database, tmp_path) -> None:
    name = f"t-{uuid4().hex[:12]}"
    (tmp_path / "home").mkdir()
    first = await prepare(database, tmp_path / "home", name, [DOCUMENT])
    assert (first.points[0].snapshot, first.key is not None) == ("0.1.0", True)
    other = DOCUMENT.replace("lin_ucb", "lin_ts")
    changed = await declare(database, first.tenant.id, other, actor="somebody")
    again = await prepare(database, tmp_path / "home", name, [DOCUMENT])
    assert again.points[0].spec_hash == changed.spec_hash
    assert (again.points[0].snapshot, again.key) == (changed.snapshot, None)


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_point_that_this_version_encodes_otherwise_begins_anew_if_it_ships(
    database, tmp_path, monkeypatch, by_hand
) -> None:
    name = f"t-{uuid4().hex[:12]}"
    (tmp_path / "home").mkdir()
    first = await prepare(database, tmp_path / "home", name, [DOCUMENT])
    (row,) = first.points
    if by_hand:
        other = DOCUMENT.replace("lin_ucb", "lin_ts")
        row = await declare(database, first.tenant.id, other, actor="somebody")
    monkeypatch.setattr(feature_map, "_CHANGED", dict.fromkeys(("text", "category", "number"), 99))
    again, then = [await prepare(database, tmp_path / "home", name, [DOCUMENT]) for _ in range(2)]
    (found,) = again.points
    assert (first.renewed, then.renewed) == ((), ())
    if by_hand:
        assert (found, again.renewed) == (row, ())
    else:
        assert (found.snapshot, again.renewed) == ("0.2.0", (found,))
        assert found.feature_hash != row.feature_hash
