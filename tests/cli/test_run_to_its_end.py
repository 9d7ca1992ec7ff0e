"""``steersman run assistant`` to its end: service, learner, controller and visitors are all real.

Nobody but the controller judges. The first candidate is what the log teaches, against a control
that has learned nothing; the second looks as good as what serves until it is served.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import urllib3

from steersman.cli.options import run as run_now
from steersman.cli.running_service import served
from steersman.cli.signing_keys import make_sample_registry
from steersman.db.audit import history
from steersman.db.derived_snapshots import hold_point
from steersman.db.incidents import incidents_of
from steersman.db.points import points_of
from steersman.db.promotion import pin_point
from steersman.db.rollouts import rollouts_of
from steersman.db.verdicts import verdicts_of
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.verdicts import recompute
from steersman_systems.assistant.points import point_documents
from tests.clusters import copy_cluster

pytestmark = pytest.mark.slow

POINT = ("assistant", "route")
EVERY_STEP = ["shadow", "canary", "ab", "ab", "live"]
ROLLOUT = """
rollout:
  stages:
    - {name: shadow, share: 0.0, min_units: 50, min_s: 0.5}
    - {name: canary, share: 0.1, min_units: 20, min_s: 0.5}
    - {name: ab, share: 0.25, min_units: 20, min_s: 0.5}
    - {name: ab, share: 0.5, min_units: 20, min_s: 0.5}
    - {name: live, share: 0.9, min_units: 10, min_s: 0.5}
  unit_window_s: 0.5
  first_look_units: 20
  planned_units: 200
  harm_units: 60
  sample_ratio_alpha: 0.000001
  stale_s: 600
budgets: {deadline_ms: 20000}
"""
LONGEST_S = 240.0


def quick(document):
    """Return the route's declaration with stages and windows of a second or less."""
    if "decision: route" not in document:
        return document
    head, _ = document.split("rollout:\n")
    return head.replace("window_s: 600", "window_s: 1") + ROLLOUT.lstrip()


class Visitors:
    """Who asks and reports: `deep` is right, the others hardly ever; or it fails when canaried."""

    def __init__(self, service):
        self.failing_for = ""
        self._service = service
        self._rng = np.random.default_rng(0)
        self._http = urllib3.PoolManager()
        self._asked = 0

    def come(self, n=20):
        asking = [
            {
                "skill": "assistant",
                "decision": "route",
                "context": {"intent": str(self._rng.choice(["faq", "booking"])), "text_len": 88},
                "unit": f"visitor-{self._asked + place}",
            }
            for place in range(n)
        ]
        self._asked += n
        answers = self._post("/v1/decide", {"requests": asking})["decisions"]
        self._post("/v1/events", {"events": [self._came_of(answer) for answer in answers]})

    def _came_of(self, answer):
        right = 0.05 if answer["action"] != "deep" or answer["arm"] == self.failing_for else 0.95
        success = float(self._rng.random() < right)
        return {
            "event_id": f"e-{answer['decision_id']}",
            "decision_id": answer["decision_id"],
            "type": "task_result",
            "outcomes": {
                "success": success,
                "tool_ok": success,
                "latency_ms": 300.0,
                "guardian_flag": 0.0,
            },
        }

    def _post(self, path, body):
        headers = {
            "authorization": f"Bearer {self._service.key}",
            "content-type": "application/json",
        }
        answer = self._http.request(
            "POST",
            self._service.urls[0] + path,
            body=json.dumps(body).encode(),
            headers=headers,
            timeout=60.0,
        )
        assert answer.status == 200, answer.data
        return json.loads(answer.data)


def read(service, work):
    """Return what a query of the tenant says."""

    async def asked():
        connection = await service.database.connect("worker")
        try:
            async with as_tenant(connection, service.tenant.id):
                return await work(connection)
        finally:
            await connection.close()

    return run_now(asked())


def as_installed(database, tenant):
    """Let the route serve with nothing learned, until something better is promoted."""

    async def pin():
        connection = await database.connect("worker")
        try:
            async with connection.transaction():
                point = (tenant.id, *POINT)
                await hold_point(connection, point)
                await pin_point(connection, point, 0)
        finally:
            await connection.close()

    run_now(pin())


@pytest.fixture(scope="module")
def running(cluster):
    """All that `steersman up` runs, with a registry and three thousand visits that are learned."""
    home = Path(tempfile.mkdtemp(prefix="st-"))
    copy_cluster(cluster, home)
    documents = [quick(document) for document in point_documents()]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        options = {"processes": 1, "controller": True, "before": as_installed}
        with served(home, "sample", documents, **options) as service:
            make_sample_registry(home, "sample")
            visitors = Visitors(service)
            for _ in range(30):
                visitors.come(100)
            learned(service)
            yield service, visitors
    shutil.rmtree(home, ignore_errors=True)


def learned(service):
    """Wait until all windows are closed and all rewards learned."""
    deadline = time.monotonic() + LONGEST_S
    while read(service, lambda it: it.fetchval("SELECT count(*) FROM work")):
        assert time.monotonic() < deadline, "work is left undone"
        time.sleep(0.1)


def run(service, visitors, told, *arguments):
    """Type the command while visitors come; return its status, and what it said."""
    file = service.home / "pipeline.json"
    file.write_text(json.dumps(told))
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"STEERSMAN_HOME": str(service.home), "OMP_NUM_THREADS": "1"}
    words = ["run", "assistant", "--only", "route", "--config", str(file), *arguments]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "steersman.cli", *words],
            env=environment,
            stdout=said,
            stderr=said,
        )
        try:
            deadline = time.monotonic() + LONGEST_S + 60
            while process.poll() is None:
                assert time.monotonic() < deadline, "it does not end"
                visitors.come()
                time.sleep(0.05)  # a few hundred a second are enough
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        return process.returncode, said.read()


def rollouts_so_far(service):
    """Return all rollouts, the newest first."""
    return read(service, lambda it: rollouts_of(it, service.tenant.id))


def newest(service):
    """Return the newest rollout and its verdicts, all of which follow from their inputs."""
    row = rollouts_so_far(service)[0]
    verdicts = read(service, lambda it: verdicts_of(it, service.tenant.id, row.id, limit=10_000))
    assert all(recompute(one) for one in verdicts)
    return row, verdicts


def serving(service):
    """Return the snapshot that serves the route."""
    rows = read(service, lambda it: points_of(it, service.tenant.id))
    (row,) = [row for row in rows if row.point == "route"]
    return row.snapshot


def test_what_the_log_teaches_is_promoted_by_the_controller(running):
    service, visitors = running
    told = {
        "deployment": {"canary_share": 0.1, "objective": {"kind": "superior", "margin": 0.0}},
        "dataset": {"min_decisions": 2500},
    }
    status, said = run(service, visitors, told, "--wait", str(LONGEST_S))
    assert status == 0, said
    steps = re.findall(r"^route +(\w+) +(\w+) ", said, flags=re.MULTILINE)
    named = ("dataset", "train", "evaluate", "package", "canary", "monitor", "promote")
    assert steps == [(name, "done") for name in named], said
    row, verdicts = newest(service)
    assert (row.status, row.candidate, serving(service)) == ("promoted", "0.1.1", "0.1.1"), said
    moved = [one for one in verdicts if one.acted not in {"none", "held"}]
    assert [one.stage for one in moved] == EVERY_STEP
    assert [one.acted for one in moved] == [*["next_stage"] * 4, "promoted"]
    assert all(one.verdict == "promote" for one in moved)
    for stage in EVERY_STEP[1:]:
        assert f"running, {stage}" in said  # it is told as it goes
    audited = read(service, history)
    acts = {one.action: one.actor for one in audited if one.action.startswith("rollout.")}
    assert acts["rollout.next_stage"] == acts["rollout.promoted"] == "controller"
    assert acts["rollout.start"] != "controller"
    assert read(service, lambda it: incidents_of(it, service.tenant.id)) == []


def test_one_that_fails_when_it_is_served_is_rolled_back_and_it_is_said_why(running):
    service, visitors = running
    before = serving(service)
    told = {"training": {"route": {"alpha": 0.3}}, "deployment": {"canary_share": 0.1}}
    visitors.failing_for = "candidate"
    status, said = run(service, visitors, told, "--wait", str(LONGEST_S))
    visitors.failing_for = ""
    assert status == 1, said
    steps = dict(re.findall(r"^route +(\w+) +(\w+) ", said, flags=re.MULTILINE))
    assert (steps["package"], steps["canary"], steps["monitor"]) == ("done", "done", "refused")
    assert "promote" not in steps  # there is nothing to promote any more
    row, verdicts = newest(service)
    assert (row.status, row.stage) == ("rolled_back", "canary"), said
    assert (verdicts[-1].verdict, verdicts[-1].acted) == ("roll_back", "rolled_back")
    assert "reward is worse" in row.reason
    assert row.reason in said
    (incident,) = read(service, lambda it: incidents_of(it, service.tenant.id))
    assert (incident.rollout, incident.kind) == (row.id, "guardrail")
    assert serving(service) == before != row.candidate
    status, said = run(service, visitors, told, "--step", "canary")
    assert status == 1
    assert "was rolled back" in said


@pytest.mark.nightly
def test_one_that_the_log_shows_to_be_worse_is_served_to_nobody(running):
    service, visitors = running
    before, rollouts = serving(service), rollouts_so_far(service)
    told = {"training": {"route": {"algorithm": "fixed", "action": "micro"}}}
    status, said = run(service, visitors, told)
    assert status == 1, said
    assert re.search(r"^route +evaluate +refused .*refused by .*max_loss", said, re.MULTILINE)
    assert "package" not in said
    assert serving(service) == before
    assert rollouts_so_far(service) == rollouts
