"""A version that serves is taken back over HTTP: everybody leaves it, nobody goes unanswered."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time

import pytest

from steersman.db.audit import history
from steersman.db.incidents import incidents_of
from steersman.db.promotion import unpin_point
from steersman.db.tenants import create_tenant
from steersman.registry.consumer import Consumer
from steersman.workers.snapshot_publisher import ShippingSettings, run_shipping
from tests.api.rollouts import decision, teach, until
from tests.api.test_serving_rollouts import prepared
from tests.kept import run

ASKED = {"skill": "search", "decision": "depth", "reason": "learned from a bot"}
POINT = ("search", "depth")
RELOADED_S = 1.0


async def two_versions(s, database, tenant):
    """Let a version serve and learn, and the next one, which is of its line, serve after it."""
    ships, first = await prepared(s, database, tenant)
    await ships.serve(first)
    await until(s, snapshot=first)
    await teach(s, database, 10, bases=s.service.verified)
    second = (await ships.publish()).version
    await ships.serve(second)
    await until(s, snapshot=second)
    return ships, first, second


async def retract(s, version, **more):
    return await s.ask("POST", "/v1/snapshots/retract", {**ASKED, "version": version, **more})


class Asking:
    """Somebody who asks all the time; `answers` are status, when it was asked, and the body."""

    def __init__(self, s):
        self.answers = []
        self._s = s
        self._stop = asyncio.Event()

    async def __aenter__(self):
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_error):
        self._stop.set()
        await self._task

    async def _run(self):
        body = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}
        while not self._stop.is_set():
            asked = time.monotonic()
            answer = await self._s.ask("POST", "/v1/decide", body)
            self.answers.append((answer.status, asked, answer.body))
            await asyncio.sleep(0.005)


async def test_everybody_goes_back_to_the_last_good_one_and_nobody_goes_unanswered(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, first, second = await two_versions(s, database, tenant)
        async with Asking(s) as asking:
            done = await retract(s, second, take_back=True)
            retracted = time.monotonic()
            assert (done.status, done.body["serves"]) == (200, first)
            await until(s, snapshot=first)
            left = time.monotonic() - retracted
            await asyncio.sleep(0.2)
        assert left < RELOADED_S + 2.0  # a busy machine; a notice, and no poll of half a minute
        assert {(status, body["degraded"]) for status, _, body in asking.answers} == {(200, False)}
        late = [body for _, asked, body in asking.answers if asked > retracted + left]
        assert {(one["snapshot"], one["update_seq"]) for one in late} == {(first, 0)}
        await told(s, ships, first, second)


async def told(s, ships, first, second):
    """What serves, what was retracted, the incident and the audit say the same."""
    listed = (await s.ask("GET", "/v1/snapshots")).body["snapshots"]
    found = {one["version"]: one for one in listed}
    assert found[first]["roles"] == ["serving"]
    assert "retracted_at" in found[second]
    assert found[second].get("roles", []) == []
    async with ships.acting("worker") as connection:
        (incident,) = await incidents_of(connection, ships.tenant, open_only=True)
        entry = next(row for row in await history(connection) if "retract" in row.action)
    assert incident.kind == "retracted"
    assert f"{second} was retracted while live; {first} is now live" in incident.summary
    assert entry.action == "snapshot.retract"
    assert entry.actor.startswith("key ")
    assert entry.detail == {
        "version": second,
        "reason": "learned from a bot",
        "serves": first,
    }


async def test_it_learns_on_unserved_until_somebody_unpins_it(database, tenant, serving) -> None:
    async with serving() as s:
        ships, first, second = await two_versions(s, database, tenant)
        await retract(s, second, take_back=True)
        await until(s, snapshot=first)
        await teach(s, database, 10, bases=s.service.verified)
        assert (await decision(s))["update_seq"] == 0
        async with ships.acting("worker") as connection:
            assert await unpin_point(connection, (tenant.id, *POINT))
        for _look in range(500):  # what the bad one and its line had learned is learned anew
            if (await decision(s))["update_seq"] >= 10:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(await decision(s))


async def test_what_was_retracted_is_left_even_if_the_last_good_one_cannot_be_had(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, first, second = await two_versions(s, database, tenant)
        shutil.rmtree(s.home / "cache")
        shutil.rmtree(ships.folder / "targets")
        async with Asking(s) as asking:
            done = await retract(s, second, take_back=True)
            assert done.body["serves"] == first
            await until(s, snapshot="0.1.0")  # the prior, which needs no registry
        assert {(status, body["degraded"]) for status, _, body in asking.answers} == {(200, False)}
        (point,) = (await s.ask("GET", "/rl-status")).body["points"]
        assert first in point["problem"]


async def third_that_cannot_be_had(s, database, ships):
    """Let a version serve that is signed, and whose bytes are gone."""
    await teach(s, database, 10, bases=s.service.verified)
    third = (await ships.publish()).version
    shutil.rmtree(ships.folder.joinpath("targets", *POINT, third))
    await ships.serve(third)
    await s.until(lambda: third in s.service.replicas.problem(ships.tenant, *POINT))
    return third


async def left(s, version):
    """Wait until something else is served, whatever is good then."""
    await s.until(lambda: s.replica(*POINT).snapshot != version)
    answer = await decision(s)
    assert (answer["snapshot"] == version, answer["degraded"]) == (False, False)


@pytest.mark.slow
async def test_what_serves_instead_of_what_is_wanted_is_left_when_it_is_retracted_later(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, _, second = await two_versions(s, database, tenant)
        await third_that_cannot_be_had(s, database, ships)
        await asyncio.sleep(2.5)  # it was asked for, and was good
        assert (await decision(s))["snapshot"] == second
        assert (await retract(s, second)).status == 200
        await left(s, second)


@pytest.mark.slow
async def test_what_stands_in_from_the_beginning_is_left_when_it_is_retracted_later(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, _, second = await two_versions(s, database, tenant)
        await third_that_cannot_be_had(s, database, ships)
        home = s.home
    async with serving(home=home) as s:
        assert (await decision(s))["snapshot"] == second
        await asyncio.sleep(2.5)
        assert (await decision(s))["snapshot"] == second
        assert (await retract(s, second)).status == 200
        await left(s, second)


async def test_consumers_leave_it_once_the_schedule_has_taken_it_out(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, first, second = await two_versions(s, database, tenant)
        root = (s.home / "trust" / tenant.name / "root.json").read_bytes()
        consumer = Consumer(ships.folder, root, s.home / "elsewhere", refresh_s=0.0)
        loaded, stop = [], threading.Event()
        watching = threading.Thread(
            target=consumer.watch,
            args=(lambda one: loaded.append(one.description.version),),
            kwargs={"interval_s": 0.05, "stop": stop},
        )
        watching.start()
        ended = asyncio.Event()
        shipping = asyncio.create_task(ship(database, ships, ended))
        try:
            await seen(loaded, [second])
            assert (await retract(s, second, take_back=True)).status == 200
            await seen(loaded, [second, first])
            # It may be marked as rolled back in one round, and be taken out in the next.
            await s.until(lambda: consumer.versions(*POINT) == [first])
        finally:
            stop.set()
            ended.set()
            watching.join()
            await shipping
        assert loaded == [second, first]


async def ship(database, ships, ended):
    await run_shipping(
        database,
        stop=ended,
        registries=lambda name: ships.publisher if name == ships.name else None,
        settings=ShippingSettings(look_s=0.05),
    )


async def seen(loaded, wanted):
    for _look in range(1000):
        if loaded == wanted:
            return
        await asyncio.sleep(0.02)
    assert loaded == wanted


async def test_what_serves_is_not_retracted_by_accident(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        await ships.serve(version)
        await until(s, snapshot=version)
        refused = await retract(s, version)
        assert (refused.status, refused.body["code"]) == (409, "not_allowed")
        assert "it is live" in refused.body["detail"]
        for wrong in ("0.1.0", "9.9.9"):
            assert (await retract(s, wrong, take_back=True)).status == 409
        blank = await retract(s, version, take_back=True, reason=" ")
        assert (blank.status, blank.body["field"]) == (422, "reason")
        assert (await decision(s))["snapshot"] == version


async def test_only_who_may_administer_retracts_and_of_its_own_alone(
    database, tenant, other, serving
) -> None:
    async with serving() as s:
        _, first, second = await two_versions(s, database, tenant)
        _, reader = await s.new_key(database, tenant, scopes=["decide", "events", "read"])
        _, foreign = await s.new_key(database, other)
        for key, status in ((reader, 403), (foreign, 409)):
            body = {**ASKED, "version": second, "take_back": True}
            answer = await s.ask("POST", "/v1/snapshots/retract", body, key=key)
            assert answer.status == status
            assert first not in str(answer.body)
        assert (await decision(s))["snapshot"] == second


@pytest.fixture
def other(tenant, database):
    """Another tenant, without any point."""
    return run(create_tenant(database, f"{tenant.name}-b", actor="test"))
