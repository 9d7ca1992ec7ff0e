"""What investigations did is counted once, whoever chose and however they ended."""

from __future__ import annotations

import numpy as np
from prometheus_client import CollectorRegistry

from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.cache_chain import CacheInLine
from steersman_systems.interrogator.choosers import Heuristic
from steersman_systems.interrogator.investigation import investigate
from steersman_systems.interrogator.metrics import InterrogatorMetrics

PREFIX = "steersman_interrogator_"


def counted(registry, name, **labels):
    return registry.get_sample_value(PREFIX + name, labels)


def test_questions_calls_gains_and_ends_are_counted(words, few):
    registry = CollectorRegistry()
    cache = CacheInLine({"memory": MemoryCache()})
    metrics = InterrogatorMetrics(registry, cache)
    answerer = OptionAnswerer(words, cache)
    done = []
    for stop_at in (0.999, 0.999, -0.5):
        investigation = investigate(
            words.target("text food pizza"),
            questions=few,
            chooser=Heuristic(),
            answerer=answerer,
            rng=np.random.default_rng(0),
            limit=2,
            stop_at=stop_at,
            on_step=metrics.on_step,
        )
        metrics.on_end(investigation, drifted=len(done) == 1)
        done.append(investigation)
    steps = [step for one in done for step in one.steps]
    assert len(steps) == 4
    by = steps[0].drawn.by
    first = steps[0].drawn.action
    assert counted(registry, "questions_total", template=first, chooser=by, cache="miss") == 1
    assert counted(registry, "questions_total", template=first, chooser=by, cache="hit") == 1
    calls = sum(one.embedder_calls for one in done)
    assert counted(registry, "embedder_calls_total") == calls > 0
    assert counted(registry, "similarity_gain_count", chooser=by) == 4
    assert counted(registry, "similarity_gain_sum", chooser=by) == sum(step.gain for step in steps)
    for end in ("solved", "exhausted", "drifted"):
        assert counted(registry, "sessions_total", end=end) == 1
    assert counted(registry, "similarity_count") == counted(registry, "steps_count") == 3
    assert counted(registry, "steps_sum") == 4
    for name in ("hits", "misses", "fallbacks", "damaged"):
        assert counted(registry, f"cache_{name}_total", cache="memory") == sum(
            getattr(cache, name).values()
        )
    assert sum(cache.hits.values()) == sum(one.cache_hits for one in done) + sum(
        one.opening.cache_hit for one in done
    )


def test_without_a_cache_in_line_nothing_is_said_of_caches():
    registry = CollectorRegistry()
    InterrogatorMetrics(registry)
    assert counted(registry, "cache_hits_total", cache="memory") is None
