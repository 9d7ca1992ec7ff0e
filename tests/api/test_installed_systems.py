"""Installed systems beside the product in one service: routes that collide, sweeps that fail."""

from __future__ import annotations

import asyncio
import sys
import textwrap

import pytest

from steersman.api.table import every_route
from steersman.errors import InputError
from steersman.points.systems import installed_systems

PART = """
    from contextlib import asynccontextmanager

    from steersman.api.route import Route, handles
    from steersman.points.systems import System

    FIRST = System("a_greeter", "Chooses a greeting.", service="greeter:First")
    LATER = System("b_greeter", "Chooses another greeting.", service="greeter:Later")

    class Part:
        swept = 0

        @classmethod
        def open(cls, parts, settings):
            return cls()

        @asynccontextmanager
        async def lifespan(self):
            yield

        async def sweep(self):
            self.swept += 1

    class First(Part):
        {first}
        async def greet(self, request): ...

        async def sweep(self):
            raise RuntimeError("no greeting left")

    class Later(Part):
        {later}
        async def greet(self, request): ...
"""
ROUTE = '@handles(Route("{}", "{}", "Greet", str{}))'


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Install a distribution of two systems with a route each."""

    def install(first="", later=""):
        folder = tmp_path / "greeter-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1\n")
        entries = "[steersman.systems]\na = greeter:FIRST\nb = greeter:LATER\n"
        (folder / "entry_points.txt").write_text(entries)
        code = textwrap.dedent(PART).replace("{first}", first).replace("{later}", later)
        (tmp_path / "greeter.py").write_text(code)
        monkeypatch.syspath_prepend(str(tmp_path))
        installed_systems.cache_clear()

    yield install
    sys.modules.pop("greeter", None)
    installed_systems.cache_clear()


@pytest.mark.parametrize(
    ("route", "said"),
    [
        (
            ROUTE.format("GET", "/v1/keys", ""),
            "path: GET /v1/keys of steersman.api.routes.keys:KeyAdmin, and GET /v1/keys of greeter",
        ),
        (
            ROUTE.format("GET", "/v1/decisions/{it}/explain", ""),
            "explain:Explain, and GET /v1/decisions/{it}/explain of greeter:First",
        ),
        (
            ROUTE.format("GET", "/v1/greeting", ", sheds='reads'"),
            "GET /v1/greeting of greeter:First: sheds is 'reads', expected None or one of read, ",
        ),
        (
            ROUTE.format("GET", "/v1/greeting", ", scope='reader'"),
            "scope is 'reader', expected None or one of decide, events, read, admin",
        ),
        (
            ROUTE.format("GET", "/v1/greetings/{id}", ", raw=True"),
            "raw is True, expected False for a path with variable parts",
        ),
    ],
    ids=["taken", "taken with another name", "sheds", "scope", "raw"],
)
async def test_a_route_that_is_taken_or_invalid_stops_the_start(
    serving, install, route, said
) -> None:
    install(route)
    with pytest.raises(InputError) as refused:
        every_route()
    assert said in str(refused.value)
    with pytest.raises(InputError) as refused:
        async with serving():
            pass
    assert said in str(refused.value)


def test_two_systems_cannot_share_a_path(install) -> None:
    route = ROUTE.format("GET", "/v1/greeting", "")
    install(route, route)
    with pytest.raises(InputError, match="of greeter:First, and GET /v1/greeting of greeter:Later"):
        every_route()


async def test_a_failing_sweep_does_not_stop_the_sweep_of_later_systems(
    serving, install, caplog
) -> None:
    install()
    async with serving() as s:
        later = s.service.systems["b_greeter"]
        async with asyncio.timeout(10):
            while not later.swept:  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)
    (said,) = [one for one in caplog.messages if "greeter" in one]
    assert said == "the sweep of the system a_greeter failed: RuntimeError('no greeting left')"
