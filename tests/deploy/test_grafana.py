"""Every query of the dashboards brings numbers on a real Prometheus that scrapes a real process."""

from __future__ import annotations

import asyncio
import json
import math
import queue
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, start_http_server

from benchmarks.monitoring_stack import monitors, until
from steersman.db.tenants import create_tenant
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.cache_chain import CacheInLine
from steersman_systems.interrogator.choosers import Heuristic, Uniform
from steersman_systems.interrogator.investigation import investigate
from steersman_systems.interrogator.metrics import InterrogatorMetrics
from steersman_systems.interrogator.questions import load_questions
from steersman_systems.interrogator.targets import Target
from tests.api.conftest import starter as starter  # noqa: PLC0414 (a fixture)
from tests.api.test_serving_rollouts import ask_units, prepared, staged
from tests.providers.chat_server import chat_server
from tests.retrieval.hashed_words import HashedWords
from tests.systems.rag_tuner.service import test_tuner_judging as judging
from tests.systems.rag_tuner.service import test_tuning as tuning

FOLDER = Path(__file__).parent.parent.parent / "deploy" / "grafana"
DASHBOARDS = {
    name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("interrogator", "rag-tuner")
}
FILLED_IN = {"$__rate_interval": "30s", "$skill": "search", "$point": "depth"}
QUIET = re.compile(
    r"cache_(fallbacks|damaged|refused)|search_degraded"
    r'|arm_decisions_total\{[^}]*result!="ok"'
)
"""What is 0 here: caches and all parts of a search do well, and so does the candidate."""


def targets_of(name):
    """Return the queries of a dashboard as Grafana sends them, and the legend of each."""
    found = []
    for panel in DASHBOARDS[name]["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for variable, value in FILLED_IN.items():
                query = query.replace(variable, value)
            found.append((query, target["legendFormat"]))
    return found


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


@contextmanager
def _evaluating(database, starter):
    """Run a service that goes on evaluating, searching and deciding; its port."""
    ports, over = queue.Queue(), threading.Event()
    with chat_server() as server, ThreadPoolExecutor(1) as pool:
        server.answer = judging.Model()
        server.usage = {"prompt_tokens": 100, "completion_tokens": 10}
        serving = pool.submit(asyncio.run, _serve(database, starter, server, ports, over))
        serving.add_done_callback(lambda _: ports.put(None))
        try:
            if port := ports.get(timeout=60.0):
                yield port
        finally:
            over.set()
            serving.result()


async def _serve(database, starter, server, ports, over):
    tenant = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    settings = judging.settings(server, day_usd=1e6, day_calls=10**6)
    async with starter(database, tenant)(settings=settings) as s:
        await tuning.fill(database, tenant, s)
        ships, version = await prepared(s, database, tenant)
        await ships.start(version, "ab", 0.5)
        await staged(s, "ab", "candidate")
        ports.put(s.port)
        for number in count():
            if over.is_set():
                return
            await _round(s, number)


async def _round(s, number):
    """Ask for all that a dashboard shows: what is answered, and what is not."""
    asked = [{**one, "text": f"{one['text']} {number}"} for one in tuning.QUESTIONS]
    reranked = {**tuning.WORDS, "rerank": True}
    at_once = [tuning.evaluate(s, questions=asked * 25) for _ in range(5)]
    answers = await asyncio.gather(*at_once)
    assert {answer.status for answer in answers} == {200, 503}  # the fifth finds no place
    for more in ({}, {"answers": {"max_calls": 3}}, {"configurations": [reranked]}):
        again = [{**one, "text": f"{one['text']} {sorted(more)}"} for one in asked]
        judged = await judging.evaluate(s, questions=again, **more)
        assert judged.status == 200, judged.body
    for corpus in ("manuals", "nobodys"):
        await s.ask("POST", "/v1/search", {"corpus": corpus, "query": asked[0]["text"]})
    await ask_units(s, [f"u{number}-{unit}" for unit in range(50)])


@pytest.fixture(scope="module")
def prometheus_of_service(programs, database, starter, tmp_path_factory):
    """Return a Prometheus that scrapes a service which evaluates, with a rollout under way."""
    with (
        _evaluating(database, starter) as port,
        monitors(tmp_path_factory.mktemp("tuner"), f"127.0.0.1:{port}") as running,
    ):
        yield running


def _numbers(prometheus, query, legend):
    """Return the numbers of an answer; None: there are none, or all are 0 that should not be."""
    rows = prometheus.query(query)
    wanted = set(re.findall(r"{{(\w+)}}", legend))
    assert {name for row in rows for name in row["metric"]} <= wanted
    assert all(wanted <= set(row["metric"]) for row in rows)
    values = [float(row["value"][1]) for row in rows]
    finite = [value for value in values if math.isfinite(value)]
    return finite if any(finite) or (finite and QUIET.search(query)) else None


@pytest.mark.slow
@pytest.mark.parametrize(("query", "legend"), targets_of("interrogator"))
def test_every_query_brings_numbers(prometheus, query, legend):
    found = until(lambda: _numbers(prometheus, query, legend), query, 60.0)
    assert all(value >= 0 for value in found)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("query", "legend"), targets_of("rag-tuner"))
def test_every_query_brings_numbers_of_a_service_that_evaluates(
    prometheus_of_service, query, legend
):
    found = until(lambda: _numbers(prometheus_of_service, query, legend), query, 60.0)
    lowest = -2.0 if "reward" in query else 0.0  # what is charged for penalties is below 0
    assert all(value >= lowest for value in found)


@pytest.mark.slow
def test_no_label_of_the_tuner_names_a_tenant_or_a_corpus(prometheus_of_service):
    rows = prometheus_of_service.wait('{__name__=~"steersman_tuner_.+"}')
    labels = {label for row in rows for label in row["metric"]}
    assert labels == {
        *("__name__", "instance", "job", "le", "process"),
        *("gate", "gates", "judged", "rerank", "result", "state", "variant"),
    }


@pytest.mark.slow
def test_no_label_names_a_tenant_or_a_target(prometheus):
    rows = prometheus.wait('{__name__=~"steersman_interrogator_.+"}')
    labels = {label for row in rows for label in row["metric"]}
    assert labels == {
        *("__name__", "instance", "job", "le"),
        *("cache", "chooser", "end", "template"),
    }


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())
def test_a_panel_has_a_place_a_title_and_the_source_that_is_chosen(dashboard):
    variable, *others = dashboard["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    asked = {f"${one['name']}" for one in others}
    assert asked == {name for name in FILLED_IN if name in json.dumps(dashboard["panels"])} - {
        "$__rate_interval"
    }
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    taken = set()
    for panel in dashboard["panels"]:
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
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_page_beside_it_names_every_series_that_is_asked_for(name):
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    asked = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for query, _ in targets_of(name)
        for name in re.findall(r"steersman_(?:interrogator_)?(\w+)", query)
    }
    assert len(asked) > 8
    assert {name for name in asked if f"`{name}`" not in page} == set()
