"""Days whose rows no whole file has, or that are being written to, stay in PostgreSQL."""

from __future__ import annotations

import pytest

from steersman.store import erase
from steersman.store.cold import query
from tests.store.rows import connected, counts


@pytest.mark.parametrize("day", [0, 5])  # with a partition of its own, and without
@pytest.mark.parametrize("dataset", ["decision", "event", "reward"])
@pytest.mark.parametrize("harm", ["gone", "damaged"])
async def test_what_no_whole_file_has_stays(days, dataset, day, harm):
    await days.write(day=day)
    await days.compact()
    (file,) = (days.destination.root / dataset / f"tenant={days.tenant.id}").rglob("*.parquet")
    content = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(content[:-1])
    before = await counts(days.database, days.tenant.id)
    kept = await days.keep()
    assert any(f"{file.name} is {harm}" in why for why in kept.waiting.values())
    after = await counts(days.database, days.tenant.id)
    kind = "event" if dataset == "event" else "decision"
    assert after[kind] == before[kind]
    file.write_bytes(content)
    kept = await days.keep()
    assert not [name for name in kept.waiting if str(days.tenant.id) in name]
    assert "decision" not in await counts(days.database, days.tenant.id)


@pytest.mark.parametrize("day", [0, 5])
async def test_a_reward_on_its_way_keeps_its_day(days, day):
    row = await days.write(day=day)
    await days.compact()
    async with connected(days.database, "worker", days.tenant.id) as connection:
        await connection.execute(
            "INSERT INTO reward (tenant, decision, revision, spec_hash, value, status, terms, "
            "final) VALUES ($1, $2, 2, $3, 0, 'scored', '{}', true)",
            *(days.tenant.id, row.id, bytes(32)),
        )
        kept = await days.keep()
        name = f"decision_default of tenant {days.tenant.id}" if day else days.names(0)[1]
        assert kept.waiting[name] == "somebody uses it"
        assert kept.deleted <= 1  # the event
    kept = await days.keep()
    assert any("rows of reward that the cold store" in why for why in kept.waiting.values())
    await days.compact()
    await days.keep()
    assert "decision" not in await counts(days.database, days.tenant.id)
    stored = await query(days.database, days.destination, days.tenant.id, "FROM reward")
    assert sorted(stored["revision"].to_pylist()) == [1, 2]


async def test_an_erasure_after_the_export_keeps_the_day_until_its_file_is_made_anew(days):
    row = await days.write()
    await days.write()
    await days.compact()
    await erase(days.database, days.tenant.id, decisions=[row.id], reason="r", actor="me")
    await days.keep()
    assert await days.existing() == days.names(0)
    await days.compact()
    await days.keep()
    assert await days.existing() == []
