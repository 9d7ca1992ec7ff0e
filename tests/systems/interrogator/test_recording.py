"""The shipped log is whole, small, and what the model says today."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.errors import DataError
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.log_recorder import record, warm_started
from steersman_systems.interrogator.point import load_point
from steersman_systems.interrogator.questions import load_questions
from steersman_systems.interrogator.state import Situation
from steersman_systems.interrogator.step_log import PROVENANCE, STEPS, load_steps
from steersman_systems.interrogator.target_sets import load_targets, recorded_vectors


@pytest.fixture(scope="module")
def log():
    return load_steps(load_questions())


@pytest.fixture(scope="module")
def warm_targets():
    try:
        return load_targets(part="warm")
    except DataError as missing:
        pytest.skip(str(missing))


def test_the_log_is_small_and_says_where_it_came_from(log):
    about = json.loads(PROVENANCE.read_text())
    assert STEPS.stat().st_size < 1_000_000
    assert about["made_by"] == "steersman data record interrogator"
    assert about["questions"] == load_questions().sha256
    assert about["steps"] == len(log) >= 10_000
    assert about["similarity"]["reached"] > about["similarity"]["opening"]


@pytest.mark.slow
def test_only_targets_for_warm_starts_are_in_it(log, warm_targets):
    assert set(log.target.tolist()) <= {target.row for target in warm_targets}


def test_recorded_vectors_are_those_of_the_targets(warm_targets):
    vectors = recorded_vectors()
    for target in warm_targets[::100]:
        np.testing.assert_array_equal(vectors[target.row], target.vector)


def test_the_log_gives_every_situation_back(log):
    contexts = list(log.contexts(recorded_vectors()))
    assert len(contexts) == len(log)
    assert contexts[0]["step"] == 0
    assert max(context["step"] for context in contexts) == 9


@pytest.mark.slow
def test_a_warm_start_learns_all_of_it(log):
    questions = load_questions()
    learned = warm_started(load_point(questions), questions)
    assert learned.policy.updates == len(log)
    assert not learned.frozen
    x = log.encoded(recorded_vectors(), learned.encoder)[::100]
    scores = np.array([learned.policy.decide(row, rng=np.random.default_rng(0)).scores
                       for row in x])  # fmt: skip
    asked, gain = log.template[::100], log.gain[::100]
    # Of its own past: what it expects goes along with what came.
    assert np.corrcoef(scores[np.arange(len(x)), asked], gain)[0, 1] > 0.3


@pytest.mark.slow
def test_logged_steps_are_what_the_model_says(log, warm_targets, minilm):
    questions = load_questions()
    by_row = {target.row: target for target in warm_targets}
    answerer = OptionAnswerer(minilm, MemoryCache())
    for session in np.unique(log.session)[::250]:
        steps = np.flatnonzero(log.session == session)
        target = by_row[int(log.target[steps[0]])]
        opening = answerer.open(questions.opening, target.vector)
        assert opening.similarity == pytest.approx(log.opening[steps[0]], abs=2e-3)
        situation = Situation.at_start(questions, target.vector, opening)
        for step in steps[:4]:
            name = str(log.names[log.template[step]])
            answer = answerer.answer(questions[name], situation)
            assert answer.similarity == pytest.approx(log.after[step], abs=2e-2)
            situation = situation.after(name, answer)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_same_recording_is_the_same_log(warm_targets, minilm):
    questions = load_questions()
    first, second = (record(questions, warm_targets, minilm, steps=20) for _ in range(2))
    assert first.to_bytes() == second.to_bytes()
    rows = {target.row for target in warm_targets}
    assert set(first.target.tolist()) <= rows


def test_an_unknown_system_is_refused_with_the_known_ones():
    refused = CliRunner().invoke(main, ["data", "record", "nothing"])
    assert refused.exit_code == 2
    assert "is not one of 'assistant', 'interrogator'" in refused.output
