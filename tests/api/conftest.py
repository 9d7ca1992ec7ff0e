"""What tests of the service share: a whole service on a real port, over the real store."""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp
import pytest

from steersman.api.server import HttpServer
from steersman.api.service import Service, Settings, assemble
from steersman.db.declarations import declare
from steersman.db.keys import create_key
from steersman.db.secret import load_secret
from steersman.db.tenants import Tenant, create_tenant
from tests.api.points import POINT
from tests.kept import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from steersman.db.keys import KeyRow
    from steersman.platform.http.connection_limits import Limits
    from steersman.platform.postgres.database import Database

DECIDE = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}


@dataclass
class Answered:
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: Any


@dataclass
class Serving:
    """A running service, and how to ask it."""

    service: Service
    server: HttpServer
    port: int
    key: str
    home: Path
    http: aiohttp.ClientSession

    async def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None = "", **headers: str
    ) -> Answered:
        """Ask with the operator's key, another, or none; bytes go as they are."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["authorization"] = f"Bearer {key or self.key}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("content-type", "application/json")
        url = f"http://127.0.0.1:{self.port}{path}"
        content = None if data is None else BytesIO(data)
        async with self.http.request(method, url, data=content, headers=sent) as answer:
            raw = await answer.read()
            is_json = answer.content_type.endswith(("/json", "+json")) and raw
            body = json.loads(raw) if is_json else raw
            lower = {name.lower(): value for name, value in answer.headers.items()}
            return Answered(answer.status, lower, body)

    async def new_key(
        self, database: Database, owner: Tenant, *, name: str = "k", **what: Any
    ) -> tuple[KeyRow, str]:
        """Make another key: an operator's, unless role or scopes are named."""
        return await create_key(
            database,
            owner.id,
            secret=load_secret(self.home),
            name=name,
            actor="test",
            **(what or {"role": "operator"}),
        )

    def replica(self, skill: str, point: str) -> Any:
        """Return what the service serves a decision point from."""
        served = [it for _, it in self.service.replicas]
        (found,) = [it.replica for it in served if it.replica.point[1:] == (skill, point)]
        return found

    async def until(self, holds: Callable[[], bool], *, within_s: float = 10.0) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(within_s):
            while not holds():  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)

    async def raw(self, data: bytes, *, within_s: float = 10.0) -> bytes:
        """Send bytes, and return all that comes until the connection ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        said = bytearray()
        try:
            writer.write(data)
            async with asyncio.timeout(within_s):
                while part := await reader.read(65_536):
                    said += part
        except ConnectionError:
            pass  # ended while we were still sending
        finally:
            writer.close()
        return bytes(said)


@pytest.fixture
def serving(
    database: Database, tenant: Tenant
) -> Callable[..., AbstractAsyncContextManager[Serving]]:
    """Return what starts a service of `tenant`, which has one decision point and one key."""
    return _starter(database, tenant)


@pytest.fixture(scope="session")
def serving_of(
    database: Database,
) -> Callable[[], Callable[..., AbstractAsyncContextManager[Serving]]]:
    """Return what returns `serving` for a tenant of its own, for fixtures that last longer."""

    def make() -> Callable[..., AbstractAsyncContextManager[Serving]]:
        new = create_tenant(database, f"t-{uuid4().hex}", actor="test")
        return _starter(database, run(new))

    return make


@pytest.fixture(scope="session")
def starter() -> Callable[..., Callable[..., AbstractAsyncContextManager[Serving]]]:
    """Return what returns `serving` for a database and a tenant of one's own."""
    return _starter


def _starter(
    database: Database, tenant: Tenant
) -> Callable[..., AbstractAsyncContextManager[Serving]]:
    @asynccontextmanager
    async def start(
        limits: Limits | None = None, settings: Settings | None = None, home: Path | None = None
    ) -> AsyncIterator[Serving]:
        home = home or Path(tempfile.mkdtemp(prefix="steersman-service-"))
        secret = load_secret(home)
        await declare(database, tenant.id, POINT, actor="test")
        _, key = await create_key(
            database, tenant.id, secret=secret, name="test", role="operator", actor="test"
        )
        async with AsyncExitStack() as stack:
            service = await assemble(stack, database, home, settings or Settings())
            server = HttpServer(service.app, limits)
            port = await stack.enter_async_context(server.on_free_port())
            http = await stack.enter_async_context(aiohttp.ClientSession())
            yield Serving(service, server, port, key, home, http)

    return start
