"""A guess beyond a log is told as one, with how far off the model was where it could be checked."""

import numpy as np
import pytest

from steersman_systems.rag_tuner.extrapolation import guessed
from steersman_systems.rag_tuner.log_reader import read_log
from steersman_systems.rag_tuner.reward import reward_of
from tests.systems.rag_tuner.logs import rows, some, written
from tests.systems.rag_tuner.worlds import tuned, world

POLICY = tuned()


def log_of(recorded, count, file, share=0.7):
    return read_log([written(file, rows(recorded, some(count), share))], "world")


def test_what_is_guessed_is_better_than_what_was_chosen_and_as_far_off_as_is_said(tmp_path):
    recorded = world(queries=100)
    log = log_of(recorded, 40, tmp_path / "log")
    every, chosen = np.arange(len(log)), log.configurations[0]
    found = guessed(log, POLICY, every, chosen)
    assert found == guessed(log, POLICY, every, chosen)
    assert not log.holds(found.configuration)
    assert found.left_out == 39
    assert found.error < 0.5 * found.constant
    worth, base = (
        reward_of(recorded.evaluate(one, np.arange(100)), POLICY).per_query.mean()
        for one in (found.configuration, chosen)
    )
    assert worth - base == pytest.approx(found.ahead, abs=3 * found.error)
    assert "and no evaluation" in str(found)
    assert f"missed by {found.error:.4f}" in str(found)


def test_a_model_that_knows_no_better_than_the_mean_tells_nothing(tmp_path):
    recorded = world(queries=60)
    lines = rows(recorded, some(20))
    rng = np.random.default_rng(0)
    for line in lines:
        line["quality"] = {"recall": rng.uniform(), "ndcg": rng.uniform()}
        line["cost"] = line["latency_ms"] = 1.0
    log = read_log([written(tmp_path / "log", lines)], "world")
    found = guessed(log, POLICY, np.arange(len(log)), log.configurations[0])
    assert found.configuration is None
    assert found.error >= found.constant
    assert "tells nothing" in str(found)


def test_of_few_configurations_nothing_is_guessed(tmp_path):
    log = log_of(world(queries=60), 9, tmp_path / "log")
    assert guessed(log, POLICY, np.arange(len(log)), log.configurations[0]) is None
    few = log_of(world(queries=60), 20, tmp_path / "few", share=0.15)
    assert guessed(few, POLICY, np.arange(len(few)), few.configurations[0]) is None
