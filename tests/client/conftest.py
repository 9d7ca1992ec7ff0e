"""A small real HTTP server that behaves as it is told, and clients of both kinds that use it."""

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from steersman import wire
from steersman.client import AsyncClient, Client

KEY = "sk-test-0123456789abcdef"


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """Clients that are killed, or give up, leave broken pipes behind."""


class ScriptedServer:
    """Answers like the service, except where `script` holds another behaviour for the next call.

    A behaviour is a status, ``(status, headers)``, ``(status, headers, body)``, or one of the words
    ``drop`` (close without an answer), ``hang`` (say nothing), ``garbage`` (200 with HTML).
    """

    def __init__(self, port=0):
        self.script = []
        self.always = None
        self.refuse = {}
        self.calls = []
        self.stored = {}
        self.sent = Counter()
        self.order = []
        self.answer = {}
        self._lock = threading.Lock()
        self._released = threading.Event()
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = _Http(("127.0.0.1", port), handler)
        self.port = self._http.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def close(self):
        self._released.set()
        self._http.shutdown()
        self._http.server_close()

    def hang(self):
        self._released.wait(60)

    def of(self, path):
        return [call for call in self.calls if call["path"] == path]

    def behaviour(self, call):
        with self._lock:
            self.calls.append(call)
            if self.script and call["path"] != "/v1/events":
                return self.script.pop(0)
            return self.always

    def decide(self, body):
        if "requests" in body:
            return {"decisions": [self.decide(one) for one in body["requests"]]}
        if body["skill"] == "unknown":
            return {"problem": problem("not_found")}
        action = body.get("eligible", ["a"])[0]
        decision = {
            "decision_id": str(wire.new_id()),
            "action": action,
            "propensity": 0.5,
            "distribution": {action: 0.5},
            "snapshot": "s1",
            "update_seq": 7,
            "stage": "live",
            "arm": "control",
            "logged": True,
            "degraded": False,
        }
        return decision | self.answer

    def store(self, body):
        results = []
        with self._lock:
            for one in [*body["records"], *body["events"]]:
                name = one.split(":")[0] if isinstance(one, str) else _name(one)
                self.sent[name] += 1
                if (refusal := self._refusal(name)) is not None:
                    result = {"id": name, "status": "refused", "problem": refusal}
                else:
                    known = name in self.stored
                    result = {"id": name, "status": "replayed" if known else "stored"}
                    if not known:
                        self.stored[name] = one
                        self.order.append(name)
                results.append(result)
        return {"results": results}

    def _refusal(self, name):
        refusal = self.refuse.get(name)
        return refusal() if callable(refusal) else refusal


def _name(one):
    return one.get("event_id") or one["decision_id"]


def problem(code):
    return json.loads(wire.write(wire.Problem.of(code, "as the script says")))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ScriptedServer

    def log_message(self, *words):
        """Keep quiet."""

    def do_GET(self):
        self._handle()

    def do_POST(self):
        self._handle()

    def _handle(self):
        length = int(self.headers.get("Content-Length", 0))
        raw = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        call = {"path": self.path, "headers": headers, "raw": raw, "at": time.monotonic()}
        call["body"] = json.loads(raw) if raw else None
        told = self.owner.behaviour(call)
        if told == "hang":
            self.owner.hang()
            told = "drop"
        if told == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif told == "garbage":
            self._answer(200, b"<html>hello</html>")
        elif told is not None:
            self._answer_as_told(told)
        else:
            self._answer(200, json.dumps(self._result(call)).encode())

    def _result(self, call):
        if call["path"].endswith("/v1/decide"):
            return self.owner.decide(call["body"])
        if call["path"].endswith("/v1/events"):
            return self.owner.store(call["body"])
        return {"path": call["path"]}

    def _answer_as_told(self, told):
        status, headers, body = (*told, {}, None)[:3] if isinstance(told, tuple) else (told, {}, 0)
        if not isinstance(body, bytes):
            codes = {status: code for code, (status, _) in wire.CODES.items()}
            body = wire.write(wire.Problem.of(codes.get(status, "internal"), "as the script says"))
        self._answer(status, body, headers)

    def _answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Awaited:
    """An `AsyncClient` on an event loop of its own, called like a `Client`."""

    def __init__(self, *arguments, **options):
        self.loop = asyncio.new_event_loop()
        self.client = AsyncClient(*arguments, **options)

    def __getattr__(self, name):
        method = getattr(self.client, name)
        if not callable(method):
            return method
        return lambda *args, **options: self.loop.run_until_complete(method(*args, **options))

    def __repr__(self):
        return repr(self.client)

    def close(self):
        self.loop.run_until_complete(self.client.close())

    def end(self):
        self.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


@pytest.fixture
def server():
    made = ScriptedServer()
    yield made
    made.close()


@pytest.fixture
def kinds():
    return [Client, Awaited]


@pytest.fixture(params=["sync", "async"])
def kind(request):
    return {"sync": Client, "async": Awaited}[request.param]


@pytest.fixture
def make(server, kind, tmp_path, monkeypatch):
    """Make clients of the server; they are closed at the end."""
    # Many tests leave rows behind on purpose; test_processes.py measures the real second.
    monkeypatch.setattr("steersman_client.outbox.EXIT_S", 0.2)
    made = []

    def build(url=None, **options):
        options.setdefault("queue_dir", tmp_path / "queue")
        made.append(kind(url or server.url, KEY, **options))
        return made[-1]

    yield build
    server.always = None
    for client in made:
        getattr(client, "end", client.close)()


@pytest.fixture
def client(make):
    return make()


@pytest.fixture
def scripted():
    """Give what tests need to start servers themselves."""
    return ScriptedServer


@pytest.fixture(name="problem")
def _problem():
    return problem


@pytest.fixture
def key():
    return KEY


def eventually(true, timeout_s=10.0):
    """Wait until something is true."""
    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.01)


@pytest.fixture(name="eventually")
def _eventually():
    return eventually
