"""The demo's answers outlive a run, and its counts reach Prometheus' node exporter."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from steersman.errors import DataError
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.choosers import Heuristic
from steersman_systems.interrogator.demo.cache import DemoMetrics, demo_cache
from steersman_systems.interrogator.investigation import investigate
from steersman_systems.interrogator.questions import load_questions
from steersman_systems.interrogator.targets import Target
from tests.redis_server import redis_server
from tests.retrieval.hashed_words import HashedWords

README = Path(__file__).parents[4] / "deploy" / "grafana" / "README.md"
WORDS = HashedWords(384)


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)


def _run(cache, file=None, console=None):
    counted = DemoMetrics(cache, file, console or Console(file=io.StringIO()))
    vector = WORDS.encode(["the weather in paris"])[0]
    done = investigate(
        Target.of_vector(vector),
        questions=load_questions(),
        chooser=Heuristic(),
        answerer=OptionAnswerer(WORDS, cache),
        rng=np.random.default_rng(0),
        on_step=counted.metrics.on_step,
        limit=3,
    )
    counted.end(done, Heuristic())
    return done, counted.shown()["cache"]


def test_without_a_store_answers_stay_in_memory():
    with demo_cache(None, say=pytest.fail) as cache:
        assert cache.names == ("memory",)
        assert _run(cache)[0].cache_hits == 0


def test_a_second_run_finds_what_the_first_embedded(database, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", database.url)
    for hits in (0, 3):
        with demo_cache(None, say=pytest.fail) as cache:
            done, told = _run(cache)
        assert (done.cache_hits, told["fallbacks"]) == (hits, {})
    assert done.embedder_calls == 0


def test_redis_keeps_answers_whatever_store_the_demo_runs(database, monkeypatch):
    pytest.importorskip("redis")
    with redis_server() as server:
        monkeypatch.setenv("REDIS_URL", server.url)
        for hits, store in ((0, None), (3, database)):
            with demo_cache(store, say=pytest.fail) as cache:
                assert _run(cache)[0].cache_hits == hits
        server.kill()
        screen = Console(file=io.StringIO(), width=100)
        with demo_cache(None, say=pytest.fail) as cache:
            _, told = _run(cache, console=screen)
        assert told["fallbacks"]["redis"] == sum(told["fallbacks"].values()) > 0
        assert "answer cache redis: not reachable" in screen.file.getvalue()
        assert "answer cache: memory" in screen.file.getvalue()


def test_a_store_that_is_named_and_away_is_told(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    said = []
    with demo_cache(None, say=said.append) as cache:
        assert cache.names == ("memory",)
    assert "PostgreSQL does not cache answers" in said[0]


def test_the_counts_are_written_for_the_node_exporter(tmp_path):
    file = tmp_path / "interrogator.prom"
    with demo_cache(None, say=pytest.fail) as cache:
        done, _ = _run(cache, file)
        with pytest.raises(DataError, match="cannot be written"):
            _run(cache, file / "below-a-file.prom")
        _run(cache, tmp_path / "new" / "interrogator.prom")
    assert (tmp_path / "new" / "interrogator.prom").exists()
    written = list(text_string_to_metric_families(file.read_text()))
    (calls,) = (one for one in written if one.name == "steersman_interrogator_embedder_calls")
    (total,) = (one for one in calls.samples if one.name.endswith("_total"))
    assert total.value == done.embedder_calls > 0


def test_the_readme_shows_how_an_application_exposes_its_counts():
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    given = {"embedder": WORDS, "vector": WORDS.encode(["the weather in paris"])[0], "PORT": 0}
    exec(compile(snippet, str(README), "exec"), given)  # noqa: S102 (ours)
    server, thread = given["server"], given["thread"]
    server.shutdown()
    server.server_close()
    thread.join()
    registry = given["registry"]
    ends = [registry.get_sample_value("steersman_interrogator_sessions_total", {"end": end})
            for end in ("solved", "exhausted")]  # fmt: skip
    assert sum(end or 0 for end in ends) == 1
