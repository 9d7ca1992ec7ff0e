"""Table of the handler classes of the HTTP API, one per noun.

A new noun needs its module under `routes` and one line here. The router and the OpenAPI document
follow, in this order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from steersman.api.route import bound, declared
from steersman.api.routes.decisions import Endpoints
from steersman.api.routes.descriptions import Descriptions
from steersman.api.routes.explain import Explain
from steersman.api.routes.health import Health
from steersman.api.routes.keys import KeyAdmin
from steersman.api.routes.rollout_plans import RolloutForecasts
from steersman.api.routes.rollouts import Rollouts
from steersman.api.routes.search import CorpusSearch
from steersman.api.routes.snapshots import Snapshots
from steersman.api.routes.status import StatusPage
from steersman.api.routes.ui import WebFiles
from steersman.api.routes.units import Units
from steersman.db.keys import SCOPES
from steersman.errors import InputError
from steersman.points.systems import load_part, systems_with
from steersman.serving.load_guard import SHEDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.api.route import Handler, Route
    from steersman.api.service import Service

NOUNS = (
    Endpoints,
    Explain,
    CorpusSearch,
    StatusPage,
    Snapshots,
    Rollouts,
    RolloutForecasts,
    KeyAdmin,
    Units,
    Health,
    Descriptions,
    WebFiles,
)
_VARIABLE = re.compile(r"\{[^}]*\}")


def every_route() -> list[Route]:
    """Return the routes of the product and of the installed systems.

    Raises:
        InputError: a system cannot be loaded, or one of its routes is invalid or taken.
    """
    systems = [load_part(system, "service") for system in systems_with("service").values()]
    found = [(noun, route) for noun in (*NOUNS, *systems) for route in declared(noun)]
    _check(found)
    return [route for _, route in found]


def open_routes(service: Service) -> list[tuple[Route, Handler]]:
    """Return the routes of a service process with their handlers.

    Raises:
        InputError: a route is invalid, or two have the same method and path.
    """
    nouns = (*(noun.open(service) for noun in NOUNS), *service.systems.values())
    found = [(type(noun), pair) for noun in nouns for pair in bound(noun)]
    _check((noun, route) for noun, (route, _) in found)
    return [pair for _, pair in found]


def _check(routes: Iterable[tuple[type[Any], Route]]) -> None:
    """Check routes and their classes; a second route of a path could drop the first one's key."""
    found: dict[tuple[str, str], str] = {}
    for noun, route in routes:
        shown = f"{route.method} {route.path} of {noun.__module__}:{noun.__qualname__}"
        if wrong := _fault(route):
            raise InputError(
                f"invalid route {shown}: {wrong}; correct it, or uninstall its distribution"
            )
        first = found.setdefault((route.method, _VARIABLE.sub("{}", route.path)), shown)
        if first is not shown:
            raise InputError(
                f"two routes have the same method and path: {first}, and {shown}; change one of "
                "them, or uninstall its distribution"
            )


def _fault(route: Route) -> str:
    """Return what is wrong with a route; empty if nothing is."""
    if route.scope is not None and route.scope not in SCOPES:
        return f"scope is {route.scope!r}, expected None or one of {', '.join(SCOPES)}"
    if route.sheds is not None and route.sheds not in SHEDS:
        return f"sheds is {route.sheds!r}, expected None or one of {', '.join(SHEDS)}"
    if route.raw and "{" in route.path:
        return "raw is True, expected False for a path with variable parts"
    return ""
