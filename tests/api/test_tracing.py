"""Traces: the caller's context is honoured, spans join it, and nothing is paid when off."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from steersman.platform.postgres.database import as_tenant
from steersman.platform.telemetry.tracing import Tracing, configure_tracing, parse_traceparent

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DECIDE = {"skill": "search", "decision": "depth", "context": {}}


@pytest.mark.parametrize(
    ("header", "parsed"),
    [
        (GOOD, GOOD),
        (GOOD[:-2] + "00", GOOD[:-2] + "00"),
        ("01" + GOOD[2:] + "-more", GOOD),
        (GOOD + "-more", None),
        ("ff" + GOOD[2:], None),
        (GOOD.upper(), None),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01", None),
        ("", None),
        (GOOD[:-1], None),
        (" " + GOOD, None),
    ],
)
def test_only_valid_contexts_are_taken(header, parsed) -> None:
    assert parse_traceparent(header.encode()) == parsed


async def test_the_callers_context_is_stored_with_decision_and_event(
    serving, database, tenant
) -> None:
    async with serving() as s:
        decided = await s.ask("POST", "/v1/decide", DECIDE, traceparent=GOOD)
        event = {"event_id": "e", "decision_id": decided.body["decision_id"]}
        await s.ask("POST", "/v1/task_result", event, traceparent=GOOD)
        plain = await s.ask("POST", "/v1/decide", DECIDE, traceparent="nonsense")
        assert plain.status == 200
        connection = await database.connect("app")
        async with as_tenant(connection, tenant.id):
            decisions = await connection.fetch("SELECT traceparent FROM decision ORDER BY id")
            events = await connection.fetch("SELECT traceparent FROM event")
        await connection.close()
        assert [row[0] for row in decisions] == [GOOD, None]
        assert [row[0] for row in events] == [GOOD]


def test_without_an_endpoint_nothing_is_configured(monkeypatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    assert configure_tracing() is None
    assert not Tracing().enabled


PROGRAM = """
import sys
from steersman.platform.telemetry.tracing import Tracing, configure_tracing
provider = configure_tracing()
tracing = Tracing()
assert tracing.enabled
with tracing.span("POST /v1/decide", sys.argv[1]) as own:
    assert own.split("-")[1] == sys.argv[1].split("-")[1], own
    assert own.split("-")[2] != sys.argv[1].split("-")[2], own
with tracing.span("POST /v1/decide", None) as own:
    assert len(own) == 55
provider.shutdown()
"""


class Collector(BaseHTTPRequestHandler):
    """Takes what an exporter sends."""

    took: list[bytes] = []  # noqa: RUF012 (of the one test that uses it)

    def do_POST(self) -> None:
        self.took.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_spans_reach_a_collector_as_children_of_the_caller() -> None:
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_port}"
            run_program({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
        finally:
            server.shutdown()
            thread.join()
    took = b"".join(Collector.took)
    assert b"POST /v1/decide" in took
    assert bytes.fromhex(GOOD.split("-")[1]) in took
    assert bytes.fromhex(GOOD.split("-")[2]) in took


@pytest.mark.slow
def test_a_collector_that_does_not_answer_holds_nothing_up() -> None:
    run_program({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})


def test_a_silent_collector_holds_up_no_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ending = "import time; print(time.time(), finish_tracing(provider, within_s=0.2))"
        program = PROGRAM.replace(
            "Tracing, configure_tracing", "Tracing, configure_tracing, finish_tracing"
        )
        done = subprocess.run(
            [sys.executable, "-c", program.replace("provider.shutdown()", ending), GOOD],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
            check=True,
            timeout=60,
            capture_output=True,
            text=True,
        )
    began, finished = done.stdout.split()
    assert time.time() - float(began) < 4.5  # the exporter alone waits for 5 s
    assert finished == "False"


def run_program(environment: dict[str, str]) -> None:
    subprocess.run(
        [sys.executable, "-c", PROGRAM, GOOD],
        env={**os.environ, **environment},
        check=True,
        timeout=60,
        capture_output=True,
    )
