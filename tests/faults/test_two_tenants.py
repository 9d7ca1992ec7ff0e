"""Two tenants over HTTP, each trying everything of the other's: nothing seen, counted or changed.

A state machine draws what they do and keeps, per tenant, a model of what it should see. Names of
keys, events and episodes are drawn from one small pool, so that both use the same ones all the
time; every id of the other's is tried beside an id that nobody has, and must get the same answer.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import count

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from steersman.wire import new_id
from tests.faults.data_rules import DataRules, filled
from tests.faults.harness import POINT, SECRET, installation
from tests.faults.kept_connection import Http
from tests.faults.rollout_rules import RolloutRules, rolled_out
from tests.kept import kept, run
from tests.nightly import nightly

CALLS = 10_000 if nightly() else 3_000
NAMES = st.sampled_from([f"n-{n}" for n in range(6)])
PATHS = st.sampled_from(
    [f"/v1/{name}" for name in ("interaction.create", "interaction.output", "feedback.submit")]
)
PLACES = st.integers(0, 99)
WHO = st.sampled_from([0, 1])
_numbers = count()


class Model:
    """What one tenant should see."""

    def __init__(self, access):
        self.access = access
        self.decisions = {}
        self.keys = {}
        self.events = {}
        self.records = []
        self.key_ids, self.made = [], []
        self.erased, self.retracted = set(), False
        self.rollout, self.candidate = "", f"0.1.{1000 + next(_numbers)}"
        self.status, self.acts = "running", 0

    def of_unit(self, unit):
        """Return the ids of a unit's decisions."""
        return {d for d, told in self.decisions.items() if told.get("unit") == unit}

    def of_episode(self, episode):
        """Return the ids of an episode's decisions."""
        return {d for d, told in self.decisions.items() if told.get("episode") == episode}

    def events_about(self, decisions):
        """Return the ids of events about some decisions, or about episodes with one of them."""
        return {
            name
            for name, (_, body) in self.events.items()
            if body.get("decision_id") in decisions
            or self.of_episode(body.get("episode_id", "")) & decisions
        }

    def forget(self, decisions, events):
        """Forget what was erased."""
        self.erased |= decisions
        for name in events:
            del self.events[name]
        for name in decisions:
            del self.decisions[name]
        for key, (_, told) in list(self.keys.items()):
            if told["decision_id"] in decisions:
                del self.keys[key]


class TwoTenants(DataRules, RolloutRules, RuleBasedStateMachine):
    """What two tenants do to each other; every example has two new ones."""

    def __init__(self, made, http):
        super().__init__()
        self.made, self.http = made, http
        self.tenants = [Model(self._tenant(number)) for number in range(2)]
        for number, model in enumerate(self.tenants):
            begun = rolled_out(made.database, model.access.tenant, model.candidate)
            model.rollout = run(begun)
            run(filled(made.database, model.access.tenant, number))

    def _tenant(self, number):
        points = (POINT, SECRET) if number == 0 else (POINT,)
        return run(self.made.tenant(f"t-{next(_numbers)}", *points))

    def post(self, who, path, body):
        status, answer = self.http.call(self.tenants[who].access, "POST", path, body)
        return status, msgspec.json.decode(answer)

    def same_as_unknown(self, who, method, path, foreign, body=None):
        """The other's id gets the answer of an id that nobody has, to the byte."""
        unknown = str(new_id())
        answers = []
        for name in (foreign, unknown):
            text = msgspec.json.encode(body).decode().replace("ID", name) if body else None
            sent = msgspec.json.decode(text) if text else None
            status, answer = self.http.call(
                self.tenants[who].access, method, path.replace("ID", name), sent
            )
            answers.append((status, answer.replace(name.encode(), b"ID")))
        assert answers[0] == answers[1]
        return answers[0]

    @rule(
        who=WHO,
        key=st.none() | NAMES,
        episode=st.none() | NAMES,
        unit=st.none() | NAMES,
        intent=st.sampled_from("ab"),
    )
    def decide(self, who, key, episode, unit, intent):
        mine = self.tenants[who]
        body = {"skill": "search", "decision": "depth", "context": {"intent": intent}}
        body |= {"episode_id": episode} if episode else {}
        body |= {"unit": unit} if unit else {}
        body |= {"idempotency_key": key} if key else {}
        status, answer = self.post(who, "/v1/decide", body)
        if key in mine.keys:
            before, told = mine.keys[key]
            assert (status, answer) == (200, told) if before == body else status == 409
            return
        assert status == 200
        assert answer["logged"] is True
        assert answer["update_seq"] == 0
        for other in self.tenants:
            assert answer["decision_id"] not in other.decisions
        mine.decisions[answer["decision_id"]] = {**answer, "unit": unit, "episode": episode}
        if key:
            mine.keys[key] = body, answer

    @rule(who=WHO)
    def decide_too_late(self, who):
        body = {"skill": "search", "decision": "depth", "deadline_ms": 0.001}
        status, answer = self.post(who, "/v1/decide", body)
        assert status == 200
        mine = self.tenants[who]
        mine.decisions[answer["decision_id"]] = answer
        if answer.get("record"):
            mine.records.append((answer["decision_id"], answer["record"]))

    @rule(who=WHO, place=PLACES)
    def explain(self, who, place):
        mine, foreign = self.tenants[who], self.foreign(who)
        if mine.decisions:
            name = list(mine.decisions)[place % len(mine.decisions)]
            if mine.decisions[name]["logged"] is True:
                status, text = self.http.call(mine.access, "GET", f"/v1/decisions/{name}/explain")
                assert status == 200
                assert msgspec.json.decode(text)["action"] == mine.decisions[name]["action"]
        if foreign:
            name = foreign[place % len(foreign)]
            path = "/v1/decisions/ID/explain"
            assert self.same_as_unknown(who, "GET", path, name)[0] == 404
            assert self.same_as_unknown(who, "GET", f"{path}?recompute=true", name)[0] == 404

    @rule(who=WHO, name=NAMES, place=PLACES, value=st.sampled_from([0, 1]), path=PATHS)
    def report_on_mine(self, who, name, place, value, path):
        mine = self.tenants[who]
        logged = [d for d, answer in mine.decisions.items() if answer["logged"] is True]
        if not logged:
            return
        body = {"decision_id": logged[place % len(logged)], "outcomes": {"success": value}}
        self._report(who, name, path, body)

    @rule(who=WHO, name=NAMES, episode=NAMES, path=PATHS)
    def report_on_an_episode(self, who, name, episode, path):
        if self.tenants[who].of_episode(episode):
            self._report(who, name, path, {"episode_id": episode, "outcomes": {"success": 1}})
        elif name not in self.tenants[who].events:
            body = {"event_id": name, "episode_id": "ID", "outcomes": {"success": 1}}
            assert self.same_as_unknown(who, "POST", "/v1/task_result", episode, body)[0] == 404

    def _report(self, who, name, path, body):
        mine = self.tenants[who]
        body = {"event_id": name, **body}
        status, answer = self.post(who, path, body)
        if name not in mine.events:
            assert (status, answer["status"]) == (200, "stored")
            mine.events[name] = path, body
        elif mine.events[name] == (path, body):
            assert (status, answer["status"]) == (200, "replayed")
        else:
            assert status == 409

    @rule(who=WHO, name=NAMES, place=PLACES)
    def report_on_the_other(self, who, name, place):
        mine, foreign = self.tenants[who], self.foreign(who)
        if foreign and name not in mine.events:
            body = {"event_id": name, "decision_id": "ID", "outcomes": {"success": 1}}
            chosen = foreign[place % len(foreign)]
            assert self.same_as_unknown(who, "POST", "/v1/task_result", chosen, body)[0] == 404
            batch = {"events": [{**body, "type": "task_result"}]}
            assert self.same_as_unknown(who, "POST", "/v1/events", chosen, batch)[0] == 200

    @rule(who=WHO, place=PLACES)
    def bring_records(self, who, place):
        mine, other = self.tenants[who], self.tenants[1 - who]
        for owner, status in ((mine, "stored"), (other, "refused")):
            if owner.records:
                name, record = owner.records[place % len(owner.records)]
                _, answer = self.post(who, "/v1/events", {"records": [record]})
                assert answer["results"][0]["status"] == status
                if owner is mine:
                    mine.decisions[name] = {**mine.decisions[name], "logged": True}

    @rule(who=WHO, place=PLACES)
    def take_the_others_id(self, who, place):
        """A decision of my own may have any id; it says nothing of another with the same."""
        mine, foreign = self.tenants[who], self.foreign(who)
        if not foreign:
            return
        name = foreign[place % len(foreign)]
        record = {"decision_id": name, "skill": "search", "decision": "depth", "action": "deep"}
        _, answer = self.post(who, "/v1/events", {"records": [record]})
        assert answer["results"] == [{"id": name, "status": "stored"}]
        mine.decisions[name] = {"action": "deep", "logged": True}

    @rule()
    def ask_for_points(self):
        """Only the first has the point `hidden`; to the second there is no such thing."""
        answers = []
        for skill in ("hidden", "absent"):
            body = {"skill": skill, "decision": "depth"}
            status, answer = self.http.call(self.tenants[1].access, "POST", "/v1/decide", body)
            answers.append((status, answer.replace(skill.encode(), b"SKILL")))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404

    @rule(who=WHO)
    def look_at_status(self, who):
        mine = self.tenants[who]
        status, text = self.http.call(mine.access, "GET", "/rl-status")
        assert status == 200
        points = msgspec.json.decode(text)["points"]
        assert len(points) == (2, 1)[who]
        assert sum(point["decisions"] for point in points) <= len(mine.decisions)

    @rule(who=WHO, place=PLACES)
    def touch_keys(self, who, place):
        mine, other = self.tenants[who], self.tenants[1 - who]
        status, text = self.http.call(mine.access, "GET", "/v1/keys")
        assert status == 200
        mine.key_ids = [key["id"] for key in msgspec.json.decode(text)["keys"]]
        assert set(mine.made) <= set(mine.key_ids)
        assert not set(mine.key_ids) & set(other.key_ids)
        if other.key_ids:
            name = other.key_ids[place % len(other.key_ids)]
            assert self.same_as_unknown(who, "DELETE", "/v1/keys/ID", name)[0] == 404
            rotation = {"grace_s": 0}
            assert self.same_as_unknown(who, "POST", "/v1/keys/ID/rotate", name, rotation)[0] == 404

    def teardown(self):
        """Each tenant has in the store what it should, and nothing more."""
        run(self._check_store())

    async def _check_store(self):
        connection = await self.made.database.connect(None)
        try:
            await self._compare(connection)
        finally:
            await connection.close()

    async def _compare(self, connection):
        for model in self.tenants:
            decisions = {
                str(row["id"]): row["action"]
                for row in await connection.fetch(
                    "SELECT id, action FROM decision WHERE tenant = $1", model.access.tenant
                )
            }
            events = await connection.fetch(
                "SELECT id FROM event WHERE tenant = $1", model.access.tenant
            )
            assert decisions.keys() <= model.decisions.keys()
            for name, answer in model.decisions.items():
                assert decisions.get(name, answer["action"]) == answer["action"]
                assert name in decisions or answer["logged"] != True  # noqa: E712 (may be a text)
            assert sorted(row["id"] for row in events) == sorted(model.events)
            await self.compare_rollouts(connection, model)


@pytest.fixture(scope="module")
def service(cluster):
    """Return an installation with one service, for all tests here."""
    with installation(cluster) as made, kept(made.database) as made.database:
        made.start_service()
        http = Http(made.url("service"))
        yield made, http
        http.close()


@pytest.mark.slow
def test_nothing_of_the_other_is_seen_counted_or_changed(service):
    made, http = service
    examples = settings(
        max_examples=48 if nightly() else 15,
        stateful_step_count=110,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    # How many steps a run takes depends on the answers; new tenants take turns until it is enough.
    for _ in range(6):
        run_state_machine_as_test(partial(TwoTenants, made, http), settings=examples)
        if http.calls >= CALLS:
            break
    assert http.calls >= CALLS
    _, published = http.call(run(made.tenant("last")), "GET", "/openapi.json")
    assert not _left_out(msgspec.json.decode(published), http.asked)


def _left_out(published, asked):
    """Return the routes that take a key and were not tried."""
    return [
        (method.upper(), path)
        for path, methods in published["paths"].items()
        for method, operation in methods.items()
        if operation["security"]
        and not any(
            method.upper() == used and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), name)
            for used, name in asked
        )
    ]
