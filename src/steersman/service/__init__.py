"""HTTP service: decisions, events and explanations, with a fallback during outages.

`serve` runs the service until it receives a signal. `assemble` and `HttpServer` embed it in another
program.
"""

from __future__ import annotations

from steersman.service.assembly import Service, Settings, assemble
from steersman.service.connections import Limits
from steersman.service.controlling import ControllerMetrics
from steersman.service.guard import Guard, GuardianState, GuardLimits
from steersman.service.logs import JsonFormatter, configure_logging
from steersman.service.metrics import Metrics
from steersman.service.server import HttpServer, serve
from steersman.service.tracing import configure_tracing, finish_tracing
from steersman.service.verified import Verified

__all__ = [
    "ControllerMetrics",
    "Guard",
    "GuardLimits",
    "GuardianState",
    "HttpServer",
    "JsonFormatter",
    "Limits",
    "Metrics",
    "Service",
    "Settings",
    "Verified",
    "assemble",
    "configure_logging",
    "configure_tracing",
    "finish_tracing",
    "serve",
]
