"""One trace from the caller through service and store to the learner, over real processes."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import urllib3
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from steersman.cli.options import run
from steersman.cli.running_service import served
from steersman.platform.postgres.database import as_tenant
from tests.api.points import POINT

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def collector():
    """Return where spans go, and those that came: (service, span)."""
    came = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = {it.key: it.value.string_value for it in resource.resource.attributes}
                for scope in resource.scope_spans:
                    came.extend((names["service.name"], span) for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", came
        server.shutdown()
        thread.join()


async def stored(service):
    connection = await service.database.connect("app")
    async with as_tenant(connection, service.tenant.id):
        rows = [
            await connection.fetchval(f"SELECT traceparent FROM {table}")
            for table in ("decision", "event", "update")
        ]
    await connection.close()
    return rows


@pytest.mark.slow
def test_decide_store_and_learner_are_one_trace(tmp_path_factory, collector, monkeypatch) -> None:
    url, came = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    home = tmp_path_factory.mktemp("home")
    for folder in (home, *home.parents[:2]):
        folder.chmod(0o755)
    with served(home, "acme", [POINT], processes=1) as service:
        headers = {"authorization": f"Bearer {service.key}"}
        headers["traceparent"] = f"00-{TRACE}-{CALLER}-01"
        with urllib3.PoolManager() as http:

            def post(path, body):
                answer = http.request("POST", service.urls[0] + path, json=body, headers=headers)
                assert answer.status == 200, answer.data
                return answer.json()

            body = {"skill": "search", "decision": "depth", "context": {"intent": "a"}}
            decided = post("/v1/decide", body)
            event = {"event_id": "e", "decision_id": decided["decision_id"]}
            post("/v1/task_result", {**event, "outcomes": {"clicked": 1}})
        patience = time.monotonic() + 30
        while not any(span.name == "learn" for _, span in came) and time.monotonic() < patience:
            time.sleep(0.05)
        rows = run(stored(service))
    spans = {span.name: (service, span) for service, span in came}
    asked, told, learned = (
        spans[name] for name in ("POST /v1/decide", "POST /v1/task_result", "learn")
    )
    assert (asked[0], told[0], learned[0]) == ("steersman", "steersman", "steersman-learner")
    for _, span in (asked, told):
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, CALLER)
    stores = [span for _, span in came if span.name == "store"]
    assert [(span.trace_id.hex(), span.parent_span_id.hex()) for span in stores] == [
        (TRACE, asked[1].span_id.hex()),
        (TRACE, told[1].span_id.hex()),
    ]
    for span, request in zip(stores, (asked[1], told[1]), strict=True):
        assert request.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano < span.end_time_unix_nano <= request.end_time_unix_nano
        said = {it.key: it.value.int_value for it in span.attributes}
        assert said == {"steersman.rows": 1, "steersman.refused": 0}
    # What is stored names the span that stored it, and the learner's links name that again.
    ids = [asked[1].span_id.hex(), told[1].span_id.hex(), told[1].span_id.hex()]
    assert rows == [f"00-{TRACE}-{span}-01" for span in ids]
    links = [(link.trace_id.hex(), link.span_id.hex()) for link in learned[1].links]
    assert links == [(TRACE, span.span_id.hex()) for span in (told[1], asked[1])]
    # The trace itself ends with what was learned, below the request that decided and the other.
    below = {
        (span.trace_id.hex(), span.parent_span_id.hex()): [link.span_id for link in span.links]
        for _, span in came
        if span.name == "learned"
    }
    batch = [learned[1].span_id]
    assert below == {(TRACE, told[1].span_id.hex()): batch, (TRACE, asked[1].span_id.hex()): batch}
