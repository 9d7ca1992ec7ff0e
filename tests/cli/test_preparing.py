"""What `up` finds in a home stays as it is; only what is missing is made."""

from __future__ import annotations

from uuid import uuid4

from steersman.cli.stack import prepare
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
