"""A rollout as a service serves it: who is served by what, and what the rows say of it."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np

from steersman.db.decisions import DecisionRow
from steersman.db.declarations import declare
from steersman.features import FeatureMap
from steersman.learning.replica import state_at
from steersman.platform.postgres.database import as_tenant
from steersman.points.feature_encoding import encode
from steersman.points.policy_factory import load_policy
from steersman.registry.consumer import Consumer
from steersman.rollouts.units import place, position
from steersman.spec.loader import loads
from tests.api.points import POINT
from tests.api.rollouts import DECIDE, decision, teach, until
from tests.api.shipping import Shipping

ACTIONS = ("shallow", "deep")


async def prepared(s, database, tenant, *, policy: str = "") -> tuple[Shipping, str]:
    """Publish what was learned from 20 decisions; control has learned from 40."""
    ships = Shipping(database, tenant.id, tenant.name, s.home)
    if policy:
        document = POINT.replace("{algorithm: lin_ucb}", policy)
        row = await declare(database, tenant.id, document, actor="test")
        await until(s, snapshot=row.snapshot)
    await teach(s, database, 20)
    version = (await ships.publish()).version
    await teach(s, database, 20)
    await until(s, update_seq=40)
    return ships, version


async def ask_units(s, units, **more):
    """Return a decision for each unit."""
    found = []
    for start in range(0, len(units), 500):
        bodies = [{**DECIDE, "unit": unit, **more} for unit in units[start : start + 500]]
        answer = await s.ask("POST", "/v1/decide", {"requests": bodies})
        found += answer.body["decisions"]
    return found


async def rows_of(database, tenant) -> dict[str, DecisionRow]:
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        rows = await connection.fetch("SELECT * FROM decision")
    await connection.close()
    return {str(row["id"]): DecisionRow(**row) for row in rows}


async def staged(s, stage: str, arm: str) -> None:
    """Wait until this process serves a stage."""
    units = [f"probe-{n}" for n in range(40)]
    async with asyncio.timeout(10):
        told: set[tuple[str, str]] = set()
        while (stage, arm) not in told:
            told = {(one["stage"], one["arm"]) for one in await ask_units(s, units)}


async def test_a_shadow_serves_nobody(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        rollout = await ships.start(version, "shadow", 0.0)
        await until(s, stage="shadow")
        units = [f"u{n}" for n in range(300)]
        answers = await ask_units(s, units)
        told = {(one["stage"], one["arm"], one["snapshot"], one["update_seq"]) for one in answers}
        assert told == {("shadow", "control", "0.1.0", 40)}
        rows = await rows_of(database, tenant)
        assert {rows[one["decision_id"]].rollout for one in answers} == {str(rollout.id)}
        await teach(s, database, 10)  # the line learns on, and control stays where it was
        await asyncio.sleep(1.2)
        assert (await decision(s))["update_seq"] == 40


async def test_units_stay_while_shares_grow_and_the_service_starts_again(
    database, tenant, serving
) -> None:
    units = [f"u{n}" for n in range(1500)]
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        rollout = await ships.start(version, "canary", 0.05)
        await staged(s, "canary", "candidate")
        await _placed(s, database, tenant, rollout, units)
        for stage, share in (("ab", 0.25), ("ab", 0.5)):
            rollout = await ships.move(rollout, stage=stage, share=share)
            await s.until(lambda r=rollout, s=s, t=tenant: _share(s, t) == r.share)
            await _placed(s, database, tenant, rollout, units)
        home = s.home
    async with serving(home=home) as s:
        await _placed(s, database, tenant, rollout, units)
        rollout = await ships.move(rollout, stage="live", share=0.95)
        await s.until(lambda: _share(s, tenant) == 0.95)
        await _placed(s, database, tenant, rollout, units)


def _share(s, tenant) -> float:
    arms = s.service.replicas.find(tenant.id, "search", "depth").arms
    return 0.0 if arms is None else arms.row.share


async def _placed(s, database, tenant, rollout, units) -> None:
    """Every unit is served by the arm of its place, from that arm's state, and its row says so."""
    answers = await ask_units(s, units)
    rows = await rows_of(database, tenant)
    for unit, answer in zip(units, answers, strict=True):
        placed = place(
            position(rollout.salt, unit), rollout.stage, min(rollout.share, 0.5), holdback=0.05
        )
        row = rows[answer["decision_id"]]
        counts = placed.arm == "candidate" or placed.analysed
        stage = rollout.stage if counts else "live"
        assert (answer["stage"], answer["arm"]) == (stage, placed.arm) == (row.stage, row.arm)
        assert row.rollout == (str(rollout.id) if counts else None)
        state = (rollout.candidate, 0) if placed.arm == "candidate" else ("0.1.0", 40)
        assert (answer["snapshot"], answer["update_seq"]) == state
        assert (row.snapshot, row.update_seq) == state


async def test_each_arm_has_the_propensities_of_its_own_state(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant, policy="{algorithm: lin_ts}")
        rollout = await ships.start(version, "ab", 0.5)
        await staged(s, "ab", "candidate")
        answers = await ask_units(s, [f"u{n}" for n in range(200)])
        rows = await rows_of(database, tenant)
        point = await ships.point()
        consumer = Consumer(
            ships.folder, (s.home / "trust" / ships.name / "root.json").read_bytes(), s.home / "own"
        )
        loaded = consumer.load("search", "depth", version)
        states = {"candidate": load_policy(loaded.state)}
        async with ships.acting("app") as connection:
            seq = rollout.control_seq
            states["control"] = await state_at(connection, point, rollout.control, seq)
        features, drawn = FeatureMap(point.spec.context), Counter()
        for answer in answers:
            row = rows[answer["decision_id"]]
            x, _ = encode(point.spec, features, row.context)
            whole = states[row.arm].distribution(x)
            assert answer["propensity"] == row.p
            assert abs(row.p - whole[ACTIONS.index(row.action)]) <= 1e-12
            assert row.spec_hash == point.spec_hash
            np.testing.assert_allclose(row.distribution, whole, atol=1e-7)
            drawn[row.arm] += 1
        assert min(drawn["control"], drawn["candidate"]) > 50
        assert not np.allclose(*(one.distribution(x) for one in states.values()))
        for answer in answers[:6]:
            path = f"/v1/decisions/{answer['decision_id']}/explain?recompute=true"
            explained = (await s.ask("GET", path)).body
            assert explained["recomputed"]["same"] is True, explained
            assert explained["arm"] == answer["arm"]
            assert explained["rollout"] == str(rollout.id)


async def test_rollback_and_promotion_take_effect_at_once(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        rollout = await ships.start(version, "live", 0.95)
        await staged(s, "live", "candidate")
        await ships.move(rollout, status="rolled_back", reason="a test")
        await s.until(lambda: _share(s, tenant) == 0.0, within_s=5)
        answers = await ask_units(s, [f"u{n}" for n in range(100)])
        assert {(one["arm"], one["snapshot"]) for one in answers} == {("control", "0.1.0")}
        await teach(s, database, 5)
        again = await ships.start(version, "live", 0.95)
        await staged(s, "live", "candidate")
        await ships.promote(again)
        await until(s, snapshot=version, arm="control")
        await until(s, update_seq=25)  # what was learned after it was published is there too
        rows = (await s.ask("GET", "/v1/snapshots")).body["snapshots"]
        roles = {one["version"]: one["roles"] for one in rows if "roles" in one}
        assert roles == {version: ["serving"]}


async def test_status_and_metrics_tell_stage_and_arms(database, tenant, serving) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        rollout = await ships.start(version, "ab", 0.5)
        await s.until(lambda: any(served.arms is not None for _, served in s.service.replicas))
        told = (await s.ask("GET", "/metrics", key=None)).body.decode()
        for arm in ("control", "candidate"):  # as 0 before anybody asks
            for result in ("ok", "failed", "fallback", "unstored"):
                labels = f'arm="{arm}",point="depth",process="0",result="{result}",skill="search"'
                assert f"steersman_arm_decisions_total{{{labels}}} 0.0" in told
        await staged(s, "ab", "candidate")
        await asyncio.sleep(1.0)  # the status page keeps its answer for so long
        (point,) = (await s.ask("GET", "/rl-status")).body["points"]
        told = point["rollout"]
        assert (told["id"], told["stage"], told["share"]) == (str(rollout.id), "ab", 0.5)
        assert (told["candidate"], told["control"]) == (version, "0.1.0")
        assert told["candidate_loaded"] is True
        text = (await s.ask("GET", "/metrics", key=None)).body.decode()
        labels = 'point="depth",process="0"'
        assert f'steersman_rollout_stage{{{labels},skill="search"}} 3.0' in text
        assert f'steersman_rollout_share{{{labels},skill="search"}} 0.5' in text
        assert 'steersman_arm_decisions_total{arm="candidate",point="depth"' in text
        rows = (await s.ask("GET", "/v1/snapshots")).body["snapshots"]
        roles = {one["version"]: one.get("roles", []) for one in rows}
        assert roles == {version: ["candidate"], "0.1.0": ["serving", "control"]}


async def test_a_candidate_of_another_declaration_draws_under_its_own(
    database, tenant, serving
) -> None:
    other = POINT.replace("lin_ucb", "lin_ts").replace("dim: 8", "dim: 16")
    async with serving() as s:
        ships, _ = await prepared(s, database, tenant)
        version = (await ships.publish(spec=other)).version
        rollout = await ships.start(version, "ab", 0.5)
        await staged(s, "ab", "candidate")
        answers = await ask_units(s, [f"u{n}" for n in range(100)])
        rows = await rows_of(database, tenant)
        declared = (await ships.point()).spec_hash
        hashes = {"control": set(), "candidate": set()}
        for answer in answers:
            row = rows[answer["decision_id"]]
            hashes[row.arm].add((row.spec_hash, row.feature_hash, row.snapshot, len(row.x)))
        ((spec_hash, *_, wide),) = hashes["control"]
        assert (spec_hash, wide) == (declared, 8)
        ((spec_hash, *_, snapshot, wide),) = hashes["candidate"]
        assert (spec_hash.hex(), snapshot, wide) == (loads(other).spec_hash, version, 16)
        for answer in answers[:8]:
            path = f"/v1/decisions/{answer['decision_id']}/explain?recompute=true"
            explained = (await s.ask("GET", path)).body
            assert explained["recomputed"]["same"] is True, explained
        assert rollout.control_seq == 40
