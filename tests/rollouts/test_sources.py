"""Where errors are counted: the store, a Prometheus over real HTTP; dead and stale are told."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest

from steersman.db.tenants import create_tenant
from steersman.errors import InputError
from steersman.rollouts.commands import act
from steersman.rollouts.error_budget import burning, stretches
from steersman.rollouts.error_sources import PrometheusSource, StoreSource
from steersman.rollouts.plan import PlannedBudget
from steersman.rollouts.units import position
from tests.rollouts.world import check_history, world

STRETCHES = (10.0, 600.0)


def at(stage):
    return lambda row: row.stage == stage or not row.is_under_way


@pytest.fixture
def prometheus():
    """A server that speaks Prometheus' HTTP interface, and says what a test wants."""

    class Handler(BaseHTTPRequestHandler):
        status = 200
        raw = None

        def do_GET(self):
            query = parse_qs(urlsplit(self.path).query)["query"][0]
            type(self).asked.append(query)
            body = self.raw if self.raw is not None else json.dumps(self._answer(query)).encode()
            self.send_response(self.status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _answer(self, query):
            if "timestamp" in query:
                age = self.said["age"]
                values = {} if age is None else {"": age}
            else:
                values = self.said["bad" if 'result!="ok"' in query else "total"]
            result = [
                {"metric": {"arm": arm} if arm else {}, "value": [0, str(value)]}
                for arm, value in values.items()
            ]
            return {"status": "success", "data": {"resultType": "vector", "result": result}}

        def log_message(self, *_):
            pass

    Handler.said = {"age": 1.0, "total": {"candidate": 40, "control": 50}, "bad": {}}
    Handler.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Handler.url = f"http://127.0.0.1:{server.server_port}"
    yield Handler
    server.shutdown()
    thread.join()
    server.server_close()


class Row:
    """As much of a rollout as Prometheus is asked about."""

    id = "r"
    skill, point = "search", "depth"
    started_at = datetime(2026, 1, 1, tzinfo=UTC)


def now():
    return datetime.now(UTC)


async def test_prometheus_tells_errors_of_both_arms(prometheus):
    prometheus.said = prometheus.said | {"bad": {"candidate": 7}}
    source = PrometheusSource(prometheus.url)
    said = await source.read(None, Row, STRETCHES, now())
    assert said.alive
    assert [tuple(count) for count in said.candidate] == [(10.0, 7.0, 40.0), (600.0, 7.0, 40.0)]
    assert [count.bad for count in said.control] == [0.0, 0.0]
    assert 'steersman_arm_decisions_total{skill="search",point="depth"' in prometheus.asked[0]
    totals = [query for query in prometheus.asked if 'result!="ok"' not in query]
    # What could not be stored is counted again beside how it was drawn: once is enough.
    assert all('result!="unstored"' in query for query in totals)
    before = len(prometheus.asked)
    await source.read(None, Row, (600.0,), now())
    assert len(prometheus.asked) == before + 1  # a long stretch is not counted every second


async def test_prometheus_is_not_asked_about_the_time_before_the_rollout(prometheus):
    """No label names a rollout: the candidate before would send this one back."""
    source = PrometheusSource(prometheus.url)
    at = Row.started_at + timedelta(seconds=30)
    said = await source.read(None, Row, STRETCHES, at)
    assert [count.seconds for count in said.candidate] == list(STRETCHES)
    asked = " ".join(prometheus.asked)
    assert "[10000ms]" in asked
    assert "[30000ms]" in asked
    assert "[600000ms]" not in asked
    prometheus.asked.clear()
    await source.read(None, Row, STRETCHES, at + timedelta(seconds=2))
    assert "[32000ms]" in " ".join(prometheus.asked)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"said": {"age": None}}, "no samples of"),
        ({"said": {"age": 3600.0}}, "its newest sample is 3600 s old"),
        ({"status": 503}, "it answered status 503"),
        ({"raw": b"<html>"}, "is not a query result"),
        ({"raw": b'{"status": "error", "error": "bad query"}'}, "it refused a query: bad query"),
        ({"raw": b"[]"}, "is not a query result"),
        (
            {"said": {"age": 1.0, "total": {"candidate": 9}, "bad": {"candidate": "NaN"}}},
            "value nan",
        ),
        (
            {"said": {"age": 1.0, "total": {"candidate": "+Inf"}, "bad": {}}},
            "value inf, which is not a count",
        ),
        ({"raw": b"x" * (2 << 20)}, "bytes; expected 200"),
    ],
)
async def test_a_prometheus_that_is_not_to_be_believed_is_told(prometheus, change, reason):
    for name, value in change.items():
        setattr(prometheus, name, value)
    said = await PrometheusSource(prometheus.url).read(None, Row, STRETCHES, now())
    assert not said.alive
    assert reason in said.reason
    assert said.candidate == ()


async def test_a_prometheus_that_is_gone_or_hangs_is_told_in_time():
    said = await PrometheusSource("http://127.0.0.1:9").read(None, Row, STRETCHES, now())
    assert "no response" in said.reason
    silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # nobody serves it
    try:
        source = PrometheusSource(f"http://127.0.0.1:{silent.server_port}", timeout_s=0.2)
        said = await source.read(None, Row, STRETCHES, now())
        assert not said.alive
    finally:
        silent.server_close()


def test_a_source_is_checked_when_it_is_named():
    with pytest.raises(InputError, match="stale_s"):
        PrometheusSource("http://127.0.0.1:9090", stale_s=0.0)


async def test_the_store_counts_those_that_something_else_had_to_answer(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    row = await act(
        database, tenant.id, begun.id, "promote", actor="a", reason="r", clock=w.clock.wall,
        force=True,
    )  # fmt: skip
    await w.arrive(row, 400, failing=1.0)
    await w.arrive(row, 400, outcomes=lambda arm: {"error": 1.0} if arm == "control" else {})
    await w.arrive(row, 400)
    moment = datetime.fromtimestamp(w.clock.now, UTC)
    connection = await database.connect("worker")
    source = StoreSource()
    said = await source.read(connection, row, STRETCHES, moment)
    counted = await connection.fetch("SELECT 1")  # the connection is nobody's
    await connection.close()
    assert counted
    assert said.alive
    units = [position(row.salt, f"u{unit}") for unit in range(1, 1201)]
    own = [place < 0.1 for place in units]
    others = [place >= 0.9 for place in units]
    assert tuple(said.candidate[1]) == (600.0, sum(own[:400]), sum(own))
    assert tuple(said.control[1]) == (600.0, sum(others[400:800]), sum(others))


async def test_a_long_stretch_is_not_judged_by_its_last_minutes(database, tenant):
    """A controller that takes over counts back bit by bit, and claims no rate before that."""
    w = await world(database, tenant.id)
    begun = await w.start()
    row = await act(
        database, tenant.id, begun.id, "promote", actor="a", reason="r", clock=w.clock.wall,
        force=True,
    )  # fmt: skip
    row = replace(row, started_at=row.started_at - timedelta(hours=3))
    now = w.clock.now
    for minutes, failing in ((150, 0.0), (100, 0.0), (50, 0.0), (1, 1.0)):
        w.clock.now = now - 60.0 * minutes
        await w.arrive(row, 1000, failing=failing)
    budget = PlannedBudget(0.9, 720 * 7200.0, fast_burn=5.0, medium_burn=50.0, slow_burn=50.0)
    lengths = stretches(budget)
    assert lengths[:2] == (600.0, 3600.0)
    source, said = StoreSource(), []
    connection = await database.connect("worker")
    for looks in range(10):
        at = datetime.fromtimestamp(now + looks, UTC)
        said.append(await source.read(connection, row, lengths, at))
    await connection.close()
    first, last = said[0], said[-1]
    assert first.alive
    assert "still being counted" in first.behind
    assert [count.seconds for count in first.candidate] == [600.0]
    assert not any(burning(budget, one.candidate) for one in said)
    assert last.behind == ""
    assert [count.seconds for count in last.candidate] == list(lengths)
    own = sum(position(row.salt, f"u{unit}") < 0.1 for unit in range(1, 4001))
    assert last.candidate[-1].total == own


async def test_a_rollout_holds_while_prometheus_is_dead_and_goes_on_with_it(
    database, tenant, prometheus
):
    w = await world(database, tenant.id)
    begun = await w.start()
    prometheus.status = 500
    source = PrometheusSource(prometheus.url, timeout_s=30.0)  # the machine may be busy
    source.tells_tenants_apart = True  # the server of these tests has many tenants
    async with w.controlled(sources=[source]):
        now = await w.drive(begun.id, steps=5)
        assert (now.stage, w.last.judgement.verdict) == ("shadow", "hold")
        assert any("source prometheus has failed" in it for it in w.last.judgement.reasons)
        prometheus.status = 200
        now = await w.drive(begun.id, steps=15, until=at("canary"))
        assert now.stage == "canary"
        prometheus.said = prometheus.said | {"bad": {"candidate": 30}}
        ended = await w.drive(begun.id, steps=5)
        assert ended.status == "rolled_back"
        assert "according to prometheus" in ended.reason
    await check_history(w, begun.id)


async def test_what_counts_for_all_tenants_is_not_read_where_there_are_several(
    database, tenant, prometheus
):
    """Neither for a verdict, nor into its inputs; and nothing tells what the others do."""
    await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    w = await world(database, tenant.id)
    begun = await w.start()
    async with w.controlled(sources=[PrometheusSource(prometheus.url)]):
        await w.drive(begun.id, steps=3)
    assert prometheus.asked == []
    (row, *_) = await check_history(w, begun.id)
    (said,) = [one for one in row.inputs["evidence"]["sources"] if one["name"] == "prometheus"]
    assert (said["alive"], said["candidate"], said["control"]) == (False, [], [])
    assert said["reason"].startswith(
        "its counts cover all tenants together, and this store has several"
    )
