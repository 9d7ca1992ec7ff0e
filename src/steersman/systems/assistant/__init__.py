"""Assistant (system 004): chooses cache tier, route and tool for each request.

`World` holds 1,311 real requests with the outcome of every choice. `draw_stream` draws arrivals as
in production traces. `replay` runs a set of `Policies` over a stream while they learn, and returns
the `Log`. See README.md in this folder.
"""

from __future__ import annotations

from steersman.systems.assistant.arrivals import (
    LOAD,
    REUSE,
    LoadLaw,
    ReuseLaw,
    arrival_times,
    arrivals,
    expected_arrivals,
    guardian_states,
)
from steersman.systems.assistant.cache import LOOKUPS, CacheTiers, Lookup, choose_threshold
from steersman.systems.assistant.choosers import (
    Chooser,
    Drawn,
    Policies,
    Seen,
    beta_tools,
    fixed,
    learned,
    oracle,
    rules,
)
from steersman.systems.assistant.consequences import Consequence, Consequences
from steersman.systems.assistant.engines import Engines, Found
from steersman.systems.assistant.history import TOOL_FEATURES, ToolHistory
from steersman.systems.assistant.intents import IntentClassifier, tool_families
from steersman.systems.assistant.log import Answered, Decision, Log
from steersman.systems.assistant.points import Points, load_points, point_documents
from steersman.systems.assistant.recording import Recording, provenance, record
from steersman.systems.assistant.replay import replay
from steersman.systems.assistant.requests import Catalogue, Request, Tool, load_catalogue
from steersman.systems.assistant.routers import RouterWorld, load_router
from steersman.systems.assistant.routes import ROUTES, Deep
from steersman.systems.assistant.stream import Glance, Stream, draw_stream
from steersman.systems.assistant.world import World

__all__ = [
    "LOAD",
    "LOOKUPS",
    "REUSE",
    "ROUTES",
    "TOOL_FEATURES",
    "Answered",
    "CacheTiers",
    "Catalogue",
    "Chooser",
    "Consequence",
    "Consequences",
    "Decision",
    "Deep",
    "Drawn",
    "Engines",
    "Found",
    "Glance",
    "IntentClassifier",
    "LoadLaw",
    "Log",
    "Lookup",
    "Points",
    "Policies",
    "Recording",
    "Request",
    "ReuseLaw",
    "RouterWorld",
    "Seen",
    "Stream",
    "Tool",
    "ToolHistory",
    "World",
    "arrival_times",
    "arrivals",
    "beta_tools",
    "choose_threshold",
    "draw_stream",
    "expected_arrivals",
    "fixed",
    "guardian_states",
    "learned",
    "load_catalogue",
    "load_points",
    "load_router",
    "oracle",
    "point_documents",
    "provenance",
    "record",
    "replay",
    "rules",
    "tool_families",
]
