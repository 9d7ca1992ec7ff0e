"""What two tenants do to rollouts and snapshots, each other's too; rules of `TwoTenants`."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import rule

from steersman.db.derived_snapshots import hold_point
from steersman.db.rollout_transitions import start_rollout
from steersman.db.snapshots import FrozenState, mark_published, reserve_snapshot
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import initial_policy
from steersman.points.state_bytes import pack_state
from steersman.rollouts.plan import plan_of

WHO = st.sampled_from([0, 1])
ACTIONS = st.sampled_from(["pause", "resume", "freeze", "rollback", "promote"])
BODIES = st.sampled_from([{"reason": "r"}, {"reason": "r", "force": True}, {"reason": " "}, {}])
_AFTER = {"pause": "paused", "resume": "running", "freeze": "paused", "rollback": "aborted"}


async def rolled_out(database, tenant, version):
    """Start a rollout of a version that is in no registry; return its id."""
    key = tenant, "search", "depth"
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, tenant):
            row = await hold_point(connection, key)
            frozen = FrozenState(
                line=row.snapshot,
                line_seq=0,
                spec_hash=row.spec_hash,
                feature_hash=row.feature_hash,
                state=pack_state(initial_policy(row.spec).state()),
                algorithm=row.spec.policy.algorithm,
                samples=0,
            )
            await reserve_snapshot(connection, key, frozen, lambda _: version)
            await mark_published(connection, key, version, {"version": version})
            begun = await start_rollout(
                connection,
                key,
                candidate=version,
                control=row.snapshot,
                control_seq=0,
                stage="shadow",
                share=0.0,
                salt="salt",
                plan=plan_of(row.spec, salt="salt").to_json(),
                now=datetime.now(UTC),
            )
            return str(begun.id)
    finally:
        await connection.close()


class RolloutRules:
    """Rules; a tenant has ``rollout``, ``candidate``, ``retracted``, ``status`` and ``acts``."""

    def get(self, who, path):
        status, answer = self.http.call(self.tenants[who].access, "GET", path)
        return status, msgspec.json.decode(answer)

    @rule(who=WHO)
    def look_at_rollouts(self, who):
        mine = self.tenants[who]
        status, listed = self.get(who, "/v1/rollouts")
        found = [(row["id"], row["status"], row["candidate"]) for row in listed["rollouts"]]
        assert (status, found) == (200, [(mine.rollout, mine.status, mine.candidate)])
        status, shown = self.get(who, f"/v1/rollouts/{mine.rollout}")
        assert (status, shown["status"], shown["step"]) == (200, mine.status, 0)
        told = self.get(who, f"/v1/rollouts/{mine.rollout}/verdicts")
        assert told == (200, {"verdicts": []})

    @rule(who=WHO)
    def look_at_snapshots(self, who):
        mine = self.tenants[who]
        status, listed = self.get(who, "/v1/snapshots")
        found = {(one["skill"], one["version"]) for one in listed["snapshots"]}
        declared = {("search", "0.1.0")} | ({("hidden", "0.1.0")} if who == 0 else set())
        assert (status, found) == (200, declared | {("search", mine.candidate)})
        back = {one["version"] for one in listed["snapshots"] if "retracted_at" in one}
        assert back == ({mine.candidate} if mine.retracted else set())

    @rule(who=WHO, action=ACTIONS)
    def act_on_mine(self, who, action):
        mine = self.tenants[who]
        path = f"/v1/rollouts/{mine.rollout}"
        legal = self.get(who, path)[1]["legal_actions"]
        status, answer = self.post(who, f"{path}/{action}", {"reason": "r"})
        if action == "promote" or action not in legal:
            assert (status, answer["code"]) == (409, "not_allowed")
            return
        assert status == 200
        if mine.status in {"running", "paused"}:
            mine.status = _AFTER[action]
        assert answer["status"] == mine.status
        mine.acts += 1

    @rule(who=WHO, action=ACTIONS, body=BODIES)
    def act_on_the_others(self, who, action, body):
        other = self.tenants[1 - who]
        path = f"/v1/rollouts/ID/{action}"
        sent = body or {"cause": "r"}
        status, _ = self.same_as_unknown(who, "POST", path, other.rollout, sent)
        assert status == (404 if body else 422)

    @rule(who=WHO)
    def ask_for_the_others(self, who):
        other = self.tenants[1 - who]
        for path in ("/v1/rollouts/ID", "/v1/rollouts/ID/verdicts"):
            assert self.same_as_unknown(who, "GET", path, other.rollout)[0] == 404

    @rule(who=WHO, again=st.sampled_from(["", "why not"]))
    def start_with_the_others_candidate(self, who, again):
        other = self.tenants[1 - who]
        wanted = {"skill": "search", "decision": "depth", "candidate": "ID", "reason": "r"}
        wanted["again"] = again
        answer = self.same_as_unknown(who, "POST", "/v1/rollouts", other.candidate, wanted)
        assert answer[0] == 409
        body = {**wanted, "candidate": self.tenants[0].candidate}
        answers = []
        for skill in ("hidden", "absent"):  # only the first tenant has the point `hidden`
            sent = msgspec.json.encode({**body, "skill": skill})
            status, text = self.http.call(
                self.tenants[1].access, "POST", "/v1/rollouts", msgspec.json.decode(sent)
            )
            answers.append((status, text.replace(skill.encode(), b"SKILL")))
        assert answers[0] == answers[1]

    async def compare_rollouts(self, connection, model):
        """Compare a tenant's rollout, incidents and audit with its model."""
        tenant = model.access.tenant
        rows = await connection.fetch("SELECT id, status FROM rollout WHERE tenant = $1", tenant)
        assert [(str(row["id"]), row["status"]) for row in rows] == [(model.rollout, model.status)]
        acts = await connection.fetchval(
            "SELECT count(*) FROM audit WHERE tenant = $1 AND action LIKE 'rollout.%'", tenant
        )
        assert acts == model.acts
        for table in ("verdict", "incident"):
            count = await connection.fetchval(
                f"SELECT count(*) FROM {table} WHERE tenant = $1",
                tenant,
            )
            assert count == 0
