"""A real Redis of its own, reached by a socket file, or over TLS alone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

_START_S = 20.0
PASSWORD = "p@ss:w/rd"  # noqa: S105 (of a server that lives as long as a test)


class RedisServer:
    """A server that can be killed, stopped and started again; it keeps nothing on disk."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.url = f"unix://:{quote(PASSWORD, safe='')}@{self.socket}"
        self._options = options
        self._process = None

    def start(self):
        """Start it, and wait until it takes connections."""
        self.socket.unlink(missing_ok=True)
        command = ["redis-server", "--unixsocket", self.socket, "--dir", self.folder, "--save", ""]
        command += ["--appendonly", "no", "--requirepass", PASSWORD, *self._options]
        if "--tls-port" not in self._options:
            command += ["--port", "0"]
        with (self.folder / "said").open("ab") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said, cwd=self.folder)
        until = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                pytest.fail(f"redis-server: {(self.folder / 'said').read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self):
        """End it without notice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def signal(self, number):
        """Send it a signal, such as the one that makes it hang."""
        self._process.send_signal(number)

    def _answers(self):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
            return True


@contextmanager
def redis_server(*options, folder=None):
    """Run a Redis until the block ends; skip without one, but fail in CI."""
    if shutil.which("redis-server") is None:
        message = "no redis-server; `tools/redis` installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    # Not in pytest's own directory: paths of socket files are short.
    home = folder or Path(tempfile.mkdtemp(prefix="steersman-redis-"))
    server = RedisServer(home, *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(home, ignore_errors=True)
