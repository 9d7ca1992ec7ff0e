"""What `up` finds in a home stays as it is; only what is missing is made."""

from __future__ import annotations

from uuid import uuid4

from steersman.cli.stack import prepare
from steersman.features import feature_map
from steersman.store import declare
from tests.store.test_points import DOCUMENT


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


async def test_a_point_that_this_version_encodes_otherwise_begins_anew(
    database, tmp_path, monkeypatch
) -> None:
    name = f"t-{uuid4().hex[:12]}"
    (tmp_path / "home").mkdir()
    first = await prepare(database, tmp_path / "home", name, [DOCUMENT])
    monkeypatch.setattr(feature_map, "_CHANGED", dict.fromkeys(("text", "category", "number"), 99))
    again = await prepare(database, tmp_path / "home", name, [DOCUMENT])
    (row,) = again.points
    assert (first.renewed, again.renewed) == ((), (row,))
    assert row.snapshot == "0.2.0"
    assert row.feature_hash != first.points[0].feature_hash
    assert (await prepare(database, tmp_path / "home", name, [DOCUMENT])).renewed == ()


async def test_what_was_declared_by_hand_is_left_to_its_declarer(
    database, tmp_path, monkeypatch
) -> None:
    name = f"t-{uuid4().hex[:12]}"
    (tmp_path / "home").mkdir()
    first = await prepare(database, tmp_path / "home", name, [DOCUMENT])
    other = DOCUMENT.replace("lin_ucb", "lin_ts")
    changed = await declare(database, first.tenant.id, other, actor="somebody")
    monkeypatch.setattr(feature_map, "_CHANGED", dict.fromkeys(("text", "category", "number"), 99))
    again = await prepare(database, tmp_path / "home", name, [DOCUMENT])
    assert (again.points, again.renewed) == ((changed,), ())
