"""Controllers on simulated traffic: what is good is promoted, what is bad is taken back."""

import asyncio
import shutil

import pytest

from steersman.db.audit import history
from steersman.errors import RolloutError
from steersman.platform.postgres.database import as_tenant
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.registry.storage import DirectoryPlace
from steersman.rollouts.commands import act
from steersman.rollouts.evidence import SourceEvidence
from steersman.snapshots.verified_bases import VerifiedBases
from tests.rollouts.world import another, check_history, world

EVERY_STEP = [
    ("shadow", "next_stage"),
    ("canary", "next_stage"),
    ("ab", "next_stage"),
    ("ab", "next_stage"),
    ("live", "promoted"),
]


def acted(rows):
    return [(row.stage, row.acted) for row in rows if row.acted not in {"none", "held"}]


def at(stage):
    return lambda row: row.stage == stage or not row.is_under_way


async def actions_of(w):
    rows = await w.read(history)
    return [row.action for row in reversed(rows) if row.action.startswith("rollout.")]


@pytest.mark.slow
async def test_a_good_candidate_goes_through_every_stage_and_takes_over(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    assert (begun.stage, begun.share) == ("shadow", 0.0)
    async with w.controlled():
        ended = await w.drive(begun.id, steps=40, candidate=0.9, control=0.4)
    rows = await check_history(w, begun.id)
    assert ended.status == "promoted", rows[-1].reasons
    assert acted(rows) == EVERY_STEP
    assert (await w.point()).snapshot == w.candidate
    assert await w.incidents() == []
    assert await actions_of(w) == [
        "rollout.start",
        *["rollout.next_stage"] * 4,
        "rollout.promoted",
    ]


@pytest.mark.slow
async def test_a_bad_candidate_is_taken_back_and_stays_frozen(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled():
        ended = await w.drive(begun.id, steps=40, candidate=0.2, control=0.7)
    rows = await check_history(w, begun.id)
    assert (ended.status, ended.stage) == ("rolled_back", "canary"), rows[-1].reasons
    assert "reward is worse" in ended.reason
    (incident,) = await w.incidents()
    assert (incident.kind, incident.rollout) == ("guardrail", begun.id)
    assert (await w.point()).snapshot == "0.1.0"
    assert (await actions_of(w))[-1] == "rollout.rolled_back"
    harmed = rows[-1].inputs["evidence"]["arrived"][0]
    assert harmed < 300
    with pytest.raises(RolloutError, match="was rolled back"):
        await w.start()
    again = await w.start(again="the world has changed")
    assert again.status == "running"


@pytest.mark.slow
async def test_one_that_is_no_better_is_neither_promoted_nor_taken_back(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled():
        now = await w.drive(begun.id, steps=30, candidate=0.5, control=0.5)
    rows = await check_history(w, begun.id)
    assert (now.status, now.stage, now.share) == ("running", "ab", 0.5), rows[-1].reasons
    assert rows[-1].verdict == "not_enough_data"
    assert any("cannot yet show that reward is better" in reason for reason in rows[-1].reasons)


async def test_a_shadow_that_asks_for_many_decisions_gets_them(database, tenant, monkeypatch):
    monkeypatch.setattr("steersman.rollouts.evidence_cache._MOST_SHADOWED", 5)
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled():
        now = await w.drive(begun.id, steps=15, units=8, until=at("canary"))
    assert now.stage == "canary", w.last.judgement.reasons


async def test_errors_of_the_candidate_alone_take_it_back(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled():
        await w.drive(begun.id, steps=10, until=at("canary"))
        ended = await w.drive(begun.id, steps=10, failing=1.0)
    assert ended.status == "rolled_back"
    (incident,) = await w.incidents()
    assert incident.kind in {"error_budget", "guardrail"}
    await check_history(w, begun.id)


async def test_traffic_that_stops_holds(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled():
        await w.drive(begun.id, steps=10, until=at("canary"))
        now = await w.drive(begun.id, steps=30, units=0)
    rows = await check_history(w, begun.id)
    assert (now.status, now.stage) == ("running", "canary")
    assert (rows[-1].verdict, rows[-1].acted) == ("hold", "held")
    assert "check the traffic" in rows[-1].reasons[0]


async def test_units_that_get_lost_stop_the_rollout(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled():
        await w.drive(begun.id, steps=10, until=at("canary"))
        now = await w.drive(
            begun.id,
            steps=30,
            candidate=0.9,
            lose=lambda arm: 0.7 if arm == "candidate" else 0.0,
            until=lambda row: row.status != "running",
        )
        assert (now.status, now.stage != "live") == ("paused", True)
        assert "uneven split" in now.reason
        later = await w.drive(begun.id, steps=3, candidate=0.9)
    assert (later.status, later.step) == ("paused", now.step)
    (incident,) = await w.incidents()
    assert incident.kind == "sample_ratio"
    await check_history(w, begun.id)


async def test_a_clock_that_jumps_shortens_no_stage(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled():
        await w.arrive(begun, 300)
        await w.turn()
        w.clock.jump(7200.0)
        for _ in range(3):
            await w.turn()
        now = await w.rollout(begun.id)
        assert (now.stage, w.last.judgement.verdict) == ("shadow", "hold")
        assert "the clock jumped by +7200.0 s" in w.last.judgement.reasons[0]
        w.clock.jump(-14_400.0)
        await w.turn()
        assert "the clock jumped by -7200.0 s" in w.last.judgement.reasons[0]
        w.clock.jump(7200.0)  # as it was
        await w.turn()
        assert (await w.rollout(begun.id)).stage == "shadow"
        w.clock.pass_(6.0)  # and steady
        now = await w.drive(begun.id, steps=3, until=at("canary"))
        assert now.stage == "canary"
    await check_history(w, begun.id)


async def test_a_candidate_that_is_deleted_goes_no_further_and_people_are_told(
    database, tenant, tmp_path
):
    registry, trust = tmp_path / "registry" / tenant.name, tmp_path / "trust" / tenant.name
    publisher = Publisher(DirectoryPlace(registry), Keys(tmp_path / "keys" / tenant.name))
    trust.mkdir(parents=True)
    (trust / "root.json").write_bytes(publisher.create(tenant.name, "correct horse battery"))
    w = await world(database, tenant.id, signer=publisher)
    begun = await w.start()
    bases = VerifiedBases(tmp_path)
    async with w.controlled(bases=bases):
        await w.drive(begun.id, steps=10, until=at("canary"))
        shutil.move(registry, tmp_path / "elsewhere")
        (tmp_path / "cache").rename(tmp_path / "lost")  # at once, though it is written to
        now = await w.drive(begun.id, steps=5, candidate=0.9)
        assert (now.status, now.stage) == ("running", "canary")
        rows = await check_history(w, begun.id)
        assert rows[-1].verdict == "hold"
        assert "cannot be loaded" in rows[-1].reasons[0]
        (incident,) = await w.incidents()
        assert incident.kind == "candidate"
        shutil.move(tmp_path / "elsewhere", registry)
        now = await w.drive(begun.id, steps=30, candidate=0.9, until=at("ab"))
        assert now.stage == "ab"
    bases.close()


class Dead:
    """A source of metrics that does not answer."""

    name = "watch"
    tells_tenants_apart = True

    async def read(self, connection, row, stretches, now):
        return SourceEvidence(self.name, alive=False, reason="it does not answer")


async def test_a_dead_source_of_metrics_holds(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled(sources=[Dead()]):
        now = await w.drive(begun.id, steps=6)
    rows = await check_history(w, begun.id)
    assert (now.status, now.stage, rows[-1].verdict) == ("running", "shadow", "hold")
    assert "metrics source watch has failed: it does not answer" in rows[-1].reasons


async def test_while_paused_it_goes_no_further_but_may_be_taken_back(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled():
        await w.drive(begun.id, steps=10, until=at("canary"))
        who = {"actor": "ann", "reason": "let us see", "clock": w.clock.wall}
        await act(database, tenant.id, begun.id, "pause", **who)
        now = await w.drive(begun.id, steps=4, candidate=0.9, control=0.4)
        assert (now.status, now.stage) == ("paused", "canary")
        ended = await w.drive(begun.id, steps=20, candidate=0.1, control=0.9)
    assert ended.status == "rolled_back"
    await check_history(w, begun.id)


async def test_a_rollout_that_cannot_be_read_keeps_no_other_waiting(database, tenant, caplog):
    good = await world(database, tenant.id)
    broken = await another(database, f"{tenant.name}-b")
    begun, other = await good.start(), await broken.start()
    connection = await database.connect("owner")
    async with as_tenant(connection, broken.tenant):
        await connection.execute("UPDATE rollout SET plan = '{}' WHERE id = $1", other.id)
    await connection.close()
    async with good.controlled():
        now = await good.drive(begun.id, steps=10, until=at("canary"))
    assert now.stage == "canary"
    assert (await broken.rollout(other.id)).stage == "shadow"
    assert f"rollout {other.id} will not be checked" in caplog.text


@pytest.mark.slow
async def test_two_tenants_of_the_same_names_do_not_mix(database, tenant):
    good = await world(database, tenant.id)
    bad = await another(database, f"{tenant.name}-b")
    bad.clock = good.clock
    begun = [await w.start() for w in (good, bad)]

    def watch(done):
        good.watch(done)
        bad.watch(done)

    async with good.controlled(watch=watch):
        for _ in range(40):
            rows = [await w.rollout(b.id) for w, b in zip((good, bad), begun, strict=True)]
            if not any(row.is_under_way for row in rows):
                break
            await good.arrive(rows[0], 300, candidate=0.9, control=0.4)
            await bad.arrive(rows[1], 300, candidate=0.2, control=0.7)
            good.clock.pass_(1.0)
            await asyncio.gather(good.turn(), bad.turn())
    assert [row.status for row in rows] == ["promoted", "rolled_back"]
    assert await good.incidents() == []
    assert [one.kind for one in await bad.incidents()] == ["guardrail"]
    for w, b in zip((good, bad), begun, strict=True):
        await check_history(w, b.id)
