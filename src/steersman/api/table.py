"""Table of the handler classes of the HTTP API, one per noun.

A new noun needs its module under `routes` and one line here. The router and the OpenAPI document
follow, in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from steersman.points.systems import load, systems_with

if TYPE_CHECKING:
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


def every_route() -> list[Route]:
    """Return the routes of the product and of the installed systems."""
    systems = [load(system.service) for system in systems_with("service").values()]
    return [route for noun in (*NOUNS, *systems) for route in declared(noun)]


def open_routes(service: Service) -> list[tuple[Route, Handler]]:
    """Return the routes of a service process with their handlers."""
    nouns = [noun.open(service) for noun in NOUNS]
    return [pair for noun in (*nouns, *service.systems.values()) for pair in bound(noun)]
