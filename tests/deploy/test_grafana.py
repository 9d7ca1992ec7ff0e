"""Every query of the dashboards brings numbers on a real Prometheus that scrapes a real process."""

from __future__ import annotations

import json
import math
import re
import threading
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, start_http_server

from benchmarks.monitoring_stack import monitors, until
from steersman.systems.interrogator import (
    CacheInLine,
    Heuristic,
    InterrogatorMetrics,
    MemoryCache,
    OptionAnswerer,
    Target,
    Uniform,
    investigate,
    load_questions,
)
from tests.retrieval.hashed_words import HashedWords

FOLDER = Path(__file__).parent.parent.parent / "deploy" / "grafana"
DASHBOARD = json.loads((FOLDER / "interrogator.json").read_text(encoding="utf-8"))
QUERIES = [
    target["expr"].replace("$__rate_interval", "30s")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]


@pytest.fixture(scope="module")
def prometheus(programs, tmp_path_factory):
    """Return a Prometheus that scrapes a process which goes on investigating."""
    registry = CollectorRegistry()
    cache = CacheInLine({"redis": MemoryCache(), "memory": MemoryCache()})
    metrics = InterrogatorMetrics(registry, cache)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    over = threading.Event()
    worker = threading.Thread(target=_investigate, args=(metrics, cache, over))
    worker.start()
    try:
        address = f"127.0.0.1:{server.server_port}"
        with monitors(tmp_path_factory.mktemp("monitors"), address) as running:
            yield running
    finally:
        over.set()
        worker.join()
        server.shutdown()
        server.server_close()
        thread.join()


def _investigate(metrics, cache, over):
    questions, embedder = load_questions(), HashedWords()
    answerer = OptionAnswerer(embedder, cache)
    rng = np.random.default_rng(0)
    for number in count():
        if over.wait(0.05):
            return
        text = f"{questions.opening} {number % 7}"
        target = Target.of_vector(embedder.encode([text])[0], text=text)
        chooser = (Heuristic(), Uniform())[number % 2]
        investigation = investigate(
            target,
            questions=questions,
            chooser=chooser,
            answerer=answerer,
            rng=rng,
            limit=4,
            stop_at=(0.1, 0.9)[number % 2],
            on_step=metrics.on_step,
        )
        metrics.on_end(investigation, drifted=number % 3 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_every_query_brings_numbers(prometheus, query):
    def numbers():
        values = [float(row["value"][1]) for row in prometheus.query(query)]
        return values if any(math.isfinite(value) for value in values) else None

    assert all(value >= 0 or math.isnan(value) for value in until(numbers, query, 60.0))


@pytest.mark.slow
def test_no_label_names_a_tenant_or_a_target(prometheus):
    rows = prometheus.wait('{__name__=~"steersman_interrogator_.+"}')
    labels = {label for row in rows for label in row["metric"]}
    assert labels == {
        *("__name__", "instance", "job", "le"),
        *("cache", "chooser", "end", "template"),
    }


def test_a_panel_has_a_place_a_title_and_the_source_that_is_chosen():
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    taken = set()
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"] == source
        assert panel["title"]
        assert panel["description"]
        assert {json.dumps(target["datasource"]) for target in panel["targets"]} == {
            json.dumps(source)
        }
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.slow
def test_the_page_beside_it_names_every_series_that_is_asked_for():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    asked = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for query in QUERIES
        for name in re.findall(r"steersman_interrogator_(\w+)", query)
    }
    assert len(asked) > 8
    assert {name for name in asked if f"`{name}`" not in page} == set()
