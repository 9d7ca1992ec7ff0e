"""Candidates that must not be loaded: control serves, and it is told and counted."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import time

import pytest

from steersman.rollouts.start import StartRequest, start
from steersman.snapshots import verified_bases as verified
from steersman.snapshots.verified_bases import VerifiedBases
from tests.api.points import POINT as DOCUMENT
from tests.api.rollouts import decision, teach, until
from tests.api.test_retracting import third_that_cannot_be_had
from tests.api.test_serving_rollouts import ask_units, prepared, staged
from tests.learning.world import bits

POINT = ("search", "depth")
UNITS = [f"u{n}" for n in range(200)]


def _delete(ships) -> None:
    for path in (ships.folder / "targets").rglob("*.zst"):
        path.unlink()


def _corrupt(ships) -> None:
    for path in (ships.folder / "targets").rglob("*.zst"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def _unsign(ships) -> None:
    for path in (ships.folder / "metadata").rglob("*.json"):
        text = path.read_text()
        path.write_text(re.sub(r'"sig": ?"[0-9a-f]{8}', '"sig":"00000000', text))


def _distrust(ships) -> None:
    shutil.rmtree(ships.home / "trust")


@pytest.mark.parametrize("harm", [_delete, _corrupt, _unsign, _distrust])
async def test_control_serves_for_what_does_not_verify(harm, database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        harm(ships)
        await ships.start(version, "ab", 0.5)
        await s.until(lambda: s.service.replicas.problem(tenant.id, *POINT) != "")
        answers = await ask_units(s, UNITS)
        assert {(one["arm"], one["snapshot"]) for one in answers} == {("control", "0.1.0")}
        assert not any(one["degraded"] for one in answers)
        assert {one["stage"] for one in answers} == {"ab"}
        await asyncio.sleep(1.0)
        (point,) = (await s.ask("GET", "/rl-status")).body["points"]
        assert point["problem"]
        assert point["rollout"].get("candidate_loaded", False) is False
        text = (await s.ask("GET", "/metrics", key=None)).body.decode()
        series = 'steersman_arm_decisions_total{arm="candidate"'
        counted = re.search(rf"{series}.*fallback.*}} (\d+)", text)
        assert counted is not None
        assert int(counted[1]) > 60


async def test_what_is_loaded_is_what_was_signed_and_never_the_row(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        signed = (await ask_units(s, ["before"]))[0]
        await _forge(database, tenant, version)
        await ships.start(version, "ab", 0.5)
        await staged(s, "ab", "candidate")
        answers = await ask_units(s, UNITS)
        (one, *_) = [one for one in answers if one["arm"] == "candidate"]
        untaught = {"shallow": 0.5, "deep": 0.5}
        assert one["distribution"] != untaught
        assert signed["distribution"] != untaught


async def _forge(database, tenant, version: str) -> None:
    """Do what whoever holds the store could: put another state into the row, and its hash."""
    connection = await database.connect(None)
    await connection.execute(
        "UPDATE steersman.snapshot AS v SET state = b.state, sha256 = b.sha256 "
        "FROM steersman.snapshot AS b WHERE v.tenant = $1 AND v.id = $2 "
        "AND b.tenant = $1 AND b.id = '0.1.0'",
        *(tenant.id, version),
    )
    await connection.close()


async def test_a_learner_goes_on_from_what_was_signed_too(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        rollout = await ships.start(version, "live", 0.95)
        await staged(s, "live", "candidate")
        await _forge(database, tenant, version)
        await ships.promote(rollout)
        await teach(s, database, 10, bases=VerifiedBases(s.home))  # leaves a checkpoint
        await until(s, snapshot=version, update_seq=30)
        followed = bits(s.replica(*POINT).policy)
        home = s.home
    async with serving(home=home) as s:
        await until(s, snapshot=version, update_seq=30)
        assert s.replica(*POINT).stored == 30
        assert bits(s.replica(*POINT).policy) == followed


async def test_a_candidate_that_comes_back_is_loaded(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        shutil.move(ships.folder / "targets", ships.home / "elsewhere")
        await ships.start(version, "ab", 0.5)
        await s.until(lambda: s.service.replicas.problem(tenant.id, *POINT) != "")
        shutil.move(ships.home / "elsewhere", ships.folder / "targets")
        await staged(s, "ab", "candidate")
        assert s.service.replicas.problem(tenant.id, *POINT) == ""


async def test_while_the_registry_is_away_the_cache_serves(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        await ships.start(version, "live", 0.95)
        await staged(s, "live", "candidate")
        home = s.home
    shutil.move(ships.folder, ships.home / "elsewhere")
    async with serving(home=home) as s:
        answers = await ask_units(s, UNITS)
        assert sum(one["snapshot"] == version for one in answers) > 150


async def test_a_registry_that_hangs_is_not_asked_all_the_time(
    database, tenant, serving, monkeypatch
) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        await ships.serve(version)
        await until(s, snapshot=version)
        home = s.home
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and never answers
        monkeypatch.setenv("STEERSMAN_REGISTRY", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(verified, "_QUICK_S", 0.2)
        monkeypatch.setattr(verified, "_PATIENT_S", 0.4)
        async with serving(home=home) as s:
            assert (await decision(s))["snapshot"] == version
            await third_that_cannot_be_had(s, database, ships)
            await s.until(lambda: s.service.breakers["registry"].opened > 0)
            text = (await s.ask("GET", "/metrics", key=None)).body.decode()
            assert re.search(r'steersman_breaker_open\{.*breaker="registry".*\} (0.5|1)', text)
            one = await decision(s)
            assert (one["snapshot"], one["degraded"]) == (version, False)


async def test_without_its_files_it_goes_on_serving_and_is_not_promoted(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        wanted = StartRequest(
            skill=POINT[0],
            point=POINT[1],
            candidate=version,
            overrides={"stages": [{"name": "live", "share": 0.95}]},
            force="a test",
        )
        row = await start(database, tenant.id, wanted, actor="test", clock=time.time)
        await staged(s, "live", "candidate")
        before = {one["snapshot"] for one in await ask_units(s, UNITS)}
        assert before == {version, "0.1.0"}
        shutil.move(ships.folder, ships.home / "elsewhere")
        shutil.rmtree(ships.home / "cache")
        path, forced = f"/v1/rollouts/{row.id}/promote", {"reason": "hurry", "force": True}
        for _ in range(2):
            refused = await s.ask("POST", path, forced)
            assert (refused.status, refused.body["code"]) == (409, "not_allowed"), refused.body
            assert "metadata/timestamp.json not found" in refused.body["detail"]
            assert str(ships.home) not in refused.body["detail"]
            answers = await ask_units(s, UNITS)
            assert {one["snapshot"] for one in answers} == before
            assert not any(one["degraded"] for one in answers)
        assert (await s.ask("GET", f"/v1/rollouts/{row.id}")).body["status"] == "running"
        shutil.move(ships.home / "elsewhere", ships.folder)
        done = await s.ask("POST", path, forced)
        assert (done.status, done.body.get("status")) == (200, "promoted"), done.body
        await until(s, snapshot=version, arm="control", update_seq=20)


async def test_a_control_that_cannot_be_loaded_is_stood_in_for(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        rollout = await ships.start(version, "live", 0.95)
        await staged(s, "live", "candidate")
        await ships.promote(rollout)
        home = s.home
    shutil.rmtree(ships.folder)
    shutil.rmtree(home / "cache")
    async with serving(home=home) as s:
        one = await decision(s)
        assert (one["snapshot"], one["update_seq"], one["degraded"]) == ("0.1.0", 0, False)
        assert s.service.replicas.problem(tenant.id, *POINT)


@pytest.mark.slow
async def test_what_was_never_proven_stands_in_for_nothing(database, tenant, serving) -> None:
    async with serving() as s:
        ships, first = await prepared(s, database, tenant)
        await ships.serve(first)
        await until(s, snapshot=first)
        await teach(s, database, 10, bases=s.service.verified)
        harmful = (await ships.publish()).version
        tried = await ships.start(harmful, "ab", 0.5)
        await ships.move(tried, status="rolled_back", reason="a test")
        another = (await ships.publish(spec=DOCUMENT.replace("lin_ucb", "lin_ts"))).version
        third = await third_that_cannot_be_had(s, database, ships)
        home = s.home
    assert len({first, harmful, another, third}) == 4
    async with serving(home=home) as s:
        assert (await decision(s))["snapshot"] == first


async def test_a_candidate_that_is_taken_back_stops_serving(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        rollout = await ships.start(version, "ab", 0.5)
        await staged(s, "ab", "candidate")
        connection = await database.connect(None)
        await connection.execute(
            "UPDATE steersman.snapshot SET retracted_at = now() WHERE tenant = $1 AND id = $2",
            *(tenant.id, version),
        )
        await connection.close()
        await s.until(lambda: "retracted" in s.service.replicas.problem(tenant.id, *POINT))
        answers = await ask_units(s, UNITS)
        assert {(one["arm"], one["snapshot"]) for one in answers} == {("control", "0.1.0")}
        assert rollout.candidate == version


async def test_a_version_that_is_archived_still_explains_what_it_drew(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        await ships.start(version, "ab", 0.5)
        await staged(s, "ab", "candidate")
        answers = await ask_units(s, UNITS)
        one = next(it for it in answers if it["arm"] == "candidate")
        home = s.home
    shutil.rmtree(ships.folder)
    shutil.rmtree(home / "cache")
    async with serving(home=home) as s:
        path = f"/v1/decisions/{one['decision_id']}/explain?recompute=true"
        explained = (await s.ask("GET", path)).body
        assert explained["recomputed"]["same"] is True, explained


async def test_a_registry_that_hangs_holds_nobody_up(
    database, tenant, serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        await ships.start(version, "live", 0.95)
        await staged(s, "live", "candidate")
        home = s.home
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # takes connections, says nothing
        port = hanging.getsockname()[1]
        monkeypatch.setenv("STEERSMAN_REGISTRY", f"http://127.0.0.1:{port}")
        async with serving(home=home) as s:
            begun = time.monotonic()
            answers = await ask_units(s, UNITS)
            assert time.monotonic() - begun < 10
            assert sum(one["snapshot"] == version for one in answers) > 150
