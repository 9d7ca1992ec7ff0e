"""A registry of one tenant in a temporary directory, with a clock that tests move."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from steersman.policies import LinUCB
from steersman.registry.consumer import Consumer
from steersman.registry.description import describe
from steersman.registry.keys import Keys
from steersman.registry.metadata_signer import at
from steersman.registry.repository import Publisher
from steersman.registry.snapshot import pack_snapshot
from steersman.registry.storage import DirectoryPlace

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000.0
DAY = 86_400.0
PASSPHRASE = "a long passphrase"  # noqa: S105


@dataclass
class Clock:
    """Seconds since 1970, as a test wants them."""

    now: float = NOW

    def __call__(self):
        return self.now


@cache
def state_of(number):
    """Return a state that differs with the number."""
    policy = LinUCB(["a", "b"], dim=2)
    for step in range(number % 97 + 1):
        policy.learn([1.0, 0.1 * step], "ab"[step % 2], 0.5 + number / 1000)
    return policy.state()


def snapshot_of(version, *, point="route", number=None, tenant="acme", **further):
    """Return bytes and description of a version: the same ones every time."""
    number = int(version.replace(".", "")) if number is None else number
    state = state_of(number)
    description = describe(
        state,
        tenant=tenant,
        skill="assistant",
        point=point,
        version=version,
        created_at=at(NOW),
        **further,
    )
    return pack_snapshot(state), description


@dataclass
class World:
    """A tenant's registry, its publisher and its consumers."""

    home: Path
    clock: Clock = field(default_factory=Clock)
    keep: int = 10
    roots: int = 1
    threshold: int = 1

    def __post_init__(self):
        self.place = DirectoryPlace(self.folder)
        self.keys = Keys(self.home / "keys")
        self.root = self.publisher().create(
            "acme", PASSPHRASE, roots=self.roots, threshold=self.threshold
        )

    @property
    def folder(self):
        return self.home / "registry" / "acme"

    @property
    def metadata(self):
        return self.folder / "metadata"

    def publisher(self, place=None, **options):
        options = {"clock": self.clock, "keep": self.keep, **options}
        return Publisher(place or self.place, self.keys, **options)

    def publish(self, *versions, standing="released", **options):
        for version in versions:
            self.publisher().publish(*snapshot_of(version, **options), standing=standing)

    def consumer(self, source=None, *, cache="cache", root=None, **options):
        # Nothing is refreshed unless a test says so.
        options = {"clock": self.clock, "timeout_s": 5.0, "refresh_s": 1e12, **options}
        return Consumer(source or self.folder, root or self.root, self.home / cache, **options)

    def copy(self, name):
        """Keep the registry as it is now, for an attacker to bring back."""
        shutil.copytree(self.folder, self.home / name)
        return self.home / name

    def bring_back(self, name, *parts):
        """Put files of a copy, or all of it, where they were."""
        if not parts:
            shutil.rmtree(self.folder)
            shutil.copytree(self.home / name, self.folder)
        for part in parts:
            shutil.copy(self.home / name / part, self.folder / part)

    def file(self, version, kind="state.zst", point="route"):
        """Return the path of a version's file."""
        return next((self.folder / "targets/assistant" / point / version).glob(f"*.{kind}"))


@pytest.fixture
def world(request, tmp_path):
    return World(tmp_path, **getattr(request, "param", {}))


class Quiet(SimpleHTTPRequestHandler):
    """Python's own static server, without its log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *given):
        pass


@contextmanager
def served(handler):
    """Run a web server; give its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def web(world):
    """Return the URL of the tenant's part of the registry, served as static files."""

    class Here(Quiet):
        def __init__(self, *given, **further):
            super().__init__(*given, directory=str(world.home / "registry"), **further)

    with served(Here) as url:
        yield f"{url}/acme"
