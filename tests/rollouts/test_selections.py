"""Rollouts of selections: the real controller leaves the shadow, by what the log says."""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pytest

from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.held_out import hold_out
from steersman.db.packed_events import log_events
from steersman.errors import RolloutError
from steersman.learning.held_out import ComparedState, compare
from steersman.points.feature_encoding import as_stored
from steersman.points.policy_factory import initial_policy
from steersman.policies.offered import Offered
from steersman.rollouts.candidate import Candidate
from steersman.rollouts.candidate_evidence import logged_choices, off_policy
from steersman.rollouts.plan import RolloutPlan
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from steersman.spec.loader import loads
from steersman.wire import selection_name
from tests.db.rows import decision_of
from tests.learning.world import happened, learn_all
from tests.rollouts.world import STAGES, Clock, NoSigner, World

SELECT = """
format: 1
skill: evidence
decision: select
actions: {{kind: sequence, max_steps: 2, candidates: 6, features: [good]}}
policy: {{algorithm: {policy}, start: {{good: 1.0}}, leading: {leading}}}
floor: 0.3
learning: {{mode: {mode}}}
fallback: {{otherwise: first}}
reward: {{terms: {{success: {{weight: 1}}}}, window_s: 1}}
rollout:
  stages: [{stages}]
  first_look_units: 20
  planned_units: 200
  stale_s: 20
"""
BEGIN = ["a", "b", "c", "d"]
LINKS = {"d": ["e"]}


def document(policy="sequence_linear", mode="online", leading=5):
    stages = ", ".join(
        f"{{name: {name}, share: {share}, min_units: {units}, min_s: 2}}"
        for name, share, units in STAGES
    )
    return SELECT.format(policy=policy, mode=mode, leading=leading, stages=stages)


def selection(row, policy, rng, *, at, **label):
    """Return a selection as a service writes it, and what it earns: what is good."""
    offered = Offered.of(BEGIN, LINKS, rng.random((5, 1)).round(2))
    found = policy.select(offered, rng=rng)
    made = decision_of(
        row, {}, selection_name(found.picked), at=at, eligible=BEGIN, links=LINKS,
        steps=[{"eligible": list(s.eligible), "action": s.action, "p": s.p} for s in found.steps],
        distribution=np.concatenate(found.distributions).tolist(), p=found.propensity,
        x=as_stored(found.x), features=as_stored(offered.rows), u=None, **label,
    )  # fmt: skip
    good = sum(float(offered.rows[offered.names.index(it), 0]) for it in found.picked)
    return made, happened(made, {"success": good / 2}, at=made.at, received_at=made.at)


async def write(database, made):
    connection = await database.connect("app")
    await log_decisions(connection, [one for one, _ in made])
    await log_events(connection, [event for _, event in made])
    await connection.close()


@dataclass
class Selecting(World):
    """A world whose units bring candidates, and are served selections by the declared start."""

    async def arrive(self, rollout, n, **_):
        plan = RolloutPlan.from_json(rollout.plan) if rollout else None
        policy, made = initial_policy(self.row.spec), []
        for _ in range(n):
            self.units += 1
            unit = f"u{self.units}"
            label = {"unit": unit} | (self._label(rollout, plan, unit)[0] if rollout else {})
            at = self.clock.now - self.rng.random() / 2
            made.append(selection(self.row, policy, self.rng, at=at, **label))
        await write(self.database, made)


async def selecting(database, tenant, *, log=400, **declared):
    """Return a point that selected for an hour, with what it learned published."""
    row = await declare(database, tenant, document(**declared), actor="test")
    rng, clock = np.random.default_rng(7), Clock(0.0)
    clock.now = (await _now(database)) - 1.0
    policy, begun = initial_policy(row.spec), clock.now - 3600
    await write(
        database,
        [selection(row, policy, rng, at=begun + i, unit=f"before-{i}") for i in range(log)],
    )
    await learn_all(database)
    trained = policy if row.spec.learning.mode == "frozen" else None
    why = Reason(actor="test")
    version = (await publish(database, row, NoSigner(), why, trained=trained)).version
    return Selecting(database, tenant, row, version, clock)


async def _now(database):
    connection = await database.connect("worker")
    try:
        return (await connection.fetchval("SELECT clock_timestamp()")).timestamp()
    finally:
        await connection.close()


async def test_a_candidate_that_selects_leaves_the_shadow(database, tenant):
    w = await selecting(database, tenant.id)
    begun = await w.start()
    assert begun.stage == "shadow"
    async with w.controlled():
        row = await w.drive(begun.id, steps=20, units=60, until=lambda it: it.stage != "shadow")
    assert row.stage == "canary", (await w.verdicts(begun.id))[-1]
    left = next(one for one in await w.verdicts(begun.id) if one.acted == "next_stage")
    seen = left.inputs["evidence"]
    assert seen["shadow"]["decisions"] >= 20
    assert seen["shadow"]["failures"] == 0
    assert not seen["off_policy"]["reasons"]


async def test_what_was_trained_is_not_judged_on_what_it_was_trained_from(database, tenant):
    w = await selecting(database, tenant.id, policy="sequence_trees", mode="frozen")
    at_once = {"overrides": {"stages": [{"name": "canary", "share": 0.1, "min_units": 20}]}}
    with pytest.raises(RolloutError, match="0 logged decisions have a reward"):
        await w.start(**at_once)
    w.clock.now = await _now(database) + 2  # publishing took time, and what comes is after it
    await w.arrive(None, 300)
    await learn_all(database)
    w.clock.now = await _now(database) + 600
    assert (await w.start(**at_once)).stage == "canary"


async def test_what_the_log_never_let_lead_is_no_evidence_for_who_would(database, tenant):
    w = await selecting(database, tenant.id, leading=3)
    wider = loads(document(leading=5))
    candidate = Candidate.of(initial_policy(wider), wider)
    logged = await w.read(lambda it: logged_choices(it, _key(w), closed=_later(w), judged=wider))
    assert len(logged) == 400
    told = off_policy(candidate, logged, gates=wider.gates)
    assert told.value is None
    assert "raise leading" in " ".join(told.reasons)
    own = Candidate.of(initial_policy(w.row.spec), w.row.spec)
    assert not off_policy(own, logged, gates=wider.gates).reasons
    states = [ComparedState(one.spec, one.policy, "0.1.0", 0) for one in (candidate, own)]
    report = await w.read(lambda it: compare(it, _key(w), *states, share=1.0))
    assert (report.decisions, report.difference) == (400, None)
    assert "raise leading" in " ".join(report.reasons)


async def test_selections_of_other_actions_are_left_out(database, tenant):
    w = await selecting(database, tenant.id)
    renamed = loads(document().replace("features: [good]", "features: [fine]")
                    .replace("start: {good", "start: {fine"))  # fmt: skip
    for spec, count in ((w.row.spec, 400), (renamed, 0)):
        logged = await w.read(lambda it, s=spec: logged_choices(it, _key(w), closed=_later(w),
                                                                judged=s))  # fmt: skip
        held = await w.read(lambda it, s=spec: hold_out(it, _key(w), share=1.0, newest=1_000,
                                                        judged=s))  # fmt: skip
        assert (len(logged), len(held)) == (count, count)


def _key(w):
    return w.tenant, w.row.skill, w.row.point


def _later(w):
    return datetime.fromtimestamp(w.clock.now + 60, UTC)
