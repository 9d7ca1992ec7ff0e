"""A real server of chat completions that can be told, by the path, how to go wrong."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def completion(text, usage=None):
    """Return an answer as OpenAI's server writes it."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    more = {} if usage is None else {"usage": usage}
    return json.dumps(
        {"id": "c-1", "object": "chat.completion", "choices": [choice]} | more
    ).encode()


class ChatServer(socketserver.ThreadingTCPServer):
    """Answers at ``/MODE/chat/completions``; what was asked lies in ``asked``.

    ``answer`` is what mode ``ok`` says: a text, or a function of the prompt. A plain server tells
    whoever speaks TLS to it, unless ``answers_tls`` is off: then it waits for the end of a line.
    The modes in ``turns`` are taken one a request before any other.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, tls=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tls = tls
        self.asked = []
        self.answer = "blue"
        self.mode = None
        self.turns = []
        self.usage = None
        self.answers_tls = True
        self.stopping = threading.Event()

    def url(self, mode="ok"):
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self.server_address[1]}/{mode}"

    def handle_error(self, request, client_address):
        """Clients that hang up are what is tested."""


class _Handler(socketserver.StreamRequestHandler):
    def setup(self):
        if self.server.tls:
            raw = self.request
            self.request = self.server.tls.wrap_socket(
                raw, server_side=True, do_handshake_on_connect=False
            )
            try:
                self.request.do_handshake()
            except OSError:
                self.request.close()
                raise
        super().setup()

    def finish(self):
        super().finish()
        self.request.close()

    def handle(self):
        # A TLS ClientHello: random bytes, in which the end of a line may never come.
        if not self.server.tls and self.rfile.peek(1)[:1] == b"\x16":
            self.refuse_tls()
            return
        path = self.rfile.readline().split()[1].decode()
        headers = {}
        while line := self.rfile.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = json.loads(self.rfile.read(int(headers["content-length"])))
        self.server.asked.append((path, headers, body))
        turns = self.server.turns
        mode = turns.pop(0) if turns else self.server.mode or path.split("/")[1]
        getattr(self, f"do_{mode}")(headers, body)

    def refuse_tls(self):
        if self.server.answers_tls:
            self.say(400, b"a plain HTTP request was expected")
            self.request.shutdown(socket.SHUT_WR)
        # Unread bytes at the end would reset the connection, and the answer be lost.
        with suppress(OSError):
            while self.rfile.read1():
                pass

    def say(self, status, body, *more):
        head = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", "Connection: close"]
        self.wfile.write("\r\n".join([*head, *more, "", ""]).encode() + body)

    def do_ok(self, headers, body):
        answer = self.server.answer
        prompt = body["messages"][0]["content"]
        said = answer(prompt) if callable(answer) else answer
        self.say(200, completion(said, self.server.usage))

    def do_silent(self, headers, body):
        self.server.stopping.wait(60)

    def do_drip(self, headers, body):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        self._drip(b" " * 10_000)

    def do_drip_last(self, headers, body):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        self._drip(b" " * 10_000)

    def do_drip_headers(self, headers, body):
        self._drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 10_000)

    def _drip(self, data):
        with suppress(OSError):
            for byte in data:
                if self.server.stopping.wait(0.02):
                    return
                self.wfile.write(bytes([byte]))

    def do_busy(self, headers, body):
        error = json.dumps({"error": {"message": "slow down", "code": 429}}).encode()
        self.say(429, error, "Retry-After: 7")

    def do_broken(self, headers, body):
        self.say(500, b"<html>oops</html>")

    def do_unauthorized(self, headers, body):
        said = f"no such key: {headers.get('authorization', '')} " * 20
        self.say(401, json.dumps({"error": {"message": "x" * 120 + said}}).encode())

    def do_too_long(self, headers, body):
        self.say(413, json.dumps({"error": {"message": "the prompt is too long"}}).encode())

    def do_moved(self, headers, body):
        self.say(302, b"", "Location: http://127.0.0.1:1/elsewhere")

    def do_garbage(self, headers, body):
        self.say(200, b'{"choices": [')

    def do_deep(self, headers, body):
        self.say(200, b"[" * 100_000)

    def do_shape(self, headers, body):
        self.say(200, b'{"choices": []}')

    def do_null(self, headers, body):
        self.say(200, completion(None))

    def do_huge(self, headers, body):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        with suppress(OSError):
            while not self.server.stopping.is_set():
                self.wfile.write(b" " * 65_536)

    def do_cut(self, headers, body):
        self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"cho')

    def do_nonsense(self, headers, body):
        self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")


@contextmanager
def chat_server(tls: ssl.SSLContext | None = None):
    """Run a server for as long as a block does."""
    server = ChatServer(tls)
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
    thread.start()
    try:
        yield server
    finally:
        server.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


def settled_threads(name, within_s=5.0):
    """Return how many threads of a name are left when they had time to end."""
    until = time.monotonic() + within_s
    while (left := sum(t.name == name for t in threading.enumerate())) and time.monotonic() < until:
        time.sleep(0.01)
    return left
