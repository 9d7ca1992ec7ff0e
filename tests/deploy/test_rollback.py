"""A candidate that begins to fail, the real Prometheus and Alertmanager, and who notices."""

import asyncio
import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from asyncpg import LockNotAvailableError

from benchmarks.monitoring_stack import CONFIGURATION
from benchmarks.rollout_fault import canary, fault
from steersman.db.verdicts import verdicts_of
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.verdicts import recompute, rejudge
from steersman.wire import new_id
from tests.clusters import copy_cluster


@pytest.fixture(scope="module")
def folder(programs, cluster):
    """A short path, and no server of others: Prometheus is asked only where there is one tenant."""
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    for name in "ab":
        copy_cluster(cluster, folder / name / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def found(folder):
    """What one fault did; nobody but the application knew of it."""
    return fault(folder / "a", warm_s=4.0, tenant=f"fault-{new_id().hex}")


@pytest.mark.slow
def test_it_is_rolled_back_within_ten_seconds_of_its_first_failure(found):
    assert 0 < found.rolled_back_s < 10
    assert found.served_s < found.rolled_back_s + 2  # and every process knows soon
    assert "burns the error budget" in found.reason
    assert re.search("according to (store|prometheus)", found.reason)  # whichever counted it first


@pytest.mark.slow
def test_the_alert_fires_and_is_delivered_and_no_other_page(found):
    assert found.fired_s < 10
    assert found.delivered_s < 12
    allowed = {"SteersmanCandidateFailing", "SteersmanCandidateBurnsBudget"}
    assert "SteersmanCandidateFailing" in found.pages
    assert set(found.pages) <= allowed


@pytest.mark.slow
def test_nobody_who_asked_was_refused_or_got_a_fallback(found):
    assert found.failed >= 10
    assert (found.refused, found.degraded) == (0, 0)
    assert found.asked > 500


@pytest.mark.slow
def test_every_series_that_the_rules_read_is_there(found):
    rules = (CONFIGURATION / "alerts.yml").read_text(encoding="utf-8")
    read = set(re.findall(r"(?<![:\w])steersman_[a-z_]+", rules)) - {"steersman_"}
    assert read - set(found.series) <= {"steersman_learner_lag_seconds"}
    table = (CONFIGURATION / "README.md").read_text(encoding="utf-8")
    told = {f"steersman_{name}" for name in re.findall(r"`([a-z_]+)`", table)}
    assert {re.sub("_(bucket|count)$", "", name) for name in read} <= told


async def refuse_rows_of_the_candidate(serving):
    """Let the database take no row that the candidate drew, as a rule of an operator might."""
    rule = "CHECK (arm <> 'candidate') NOT VALID"
    alter = f"ALTER TABLE decision ADD CONSTRAINT no_candidates {rule}"
    connection = await serving.running.database.connect("owner")
    try:
        # Decisions wait behind a lock that waits for a reader.
        await connection.execute("SET lock_timeout = '200ms'")
        for _ in range(100):
            with suppress(LockNotAvailableError):
                await connection.execute(alter)
                return
        pytest.fail("the table was locked all the time")
    finally:
        await connection.close()


async def verdicts(serving):
    row, connection = serving.row, await serving.running.database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            return await verdicts_of(connection, row.tenant, row.id, limit=10_000)
    finally:
        await connection.close()


@pytest.mark.slow
def test_what_prometheus_alone_can_see_is_rolled_back_on_its_word(folder):
    with canary(folder / "b", warm_s=4.0, tenant=f"unseen-{new_id().hex}") as serving:
        begun = time.time()
        asyncio.run(refuse_rows_of_the_candidate(serving))
        end = serving.wait_for_end()
        last = asyncio.run(verdicts(serving))[-1]
    assert end.status == "rolled_back"
    assert 0 < end.ended_at.timestamp() - begun < 15
    assert serving.traffic.counts["refused"] >= 10  # and nobody else was harmed
    assert serving.traffic.counts["degraded"] == 0
    assert (last.verdict, last.acted) == ("roll_back", "rolled_back")
    assert re.search(r"burns the error budget .* according to prometheus", last.reasons[0])
    sources = {source["name"]: source for source in last.inputs["evidence"]["sources"]}
    store, prometheus = sources["store"], sources["prometheus"]
    assert [bad for _, bad, _ in store["candidate"]] == [0] * len(store["candidate"])
    assert max(total for _, _, total in store["candidate"]) > 0  # it was asked, and found all well
    assert max(bad for _, bad, _ in prometheus["candidate"]) >= 10
    assert max(bad for _, bad, _ in prometheus["control"]) == 0
    assert recompute(last)
    unseen = {**last.inputs["evidence"], "sources": [store]}
    assert rejudge({**last.inputs, "evidence": unseen}).verdict != "roll_back"
