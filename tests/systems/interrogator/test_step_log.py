"""A log holds whole sessions with exact propensities, and gives back what the chooser saw."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.features import FeatureMap
from steersman.points.feature_encoding import rounded
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.choosers import Learned, Uniform
from steersman_systems.interrogator.investigation import investigate
from steersman_systems.interrogator.point import load_point
from steersman_systems.interrogator.questions import load_questions
from steersman_systems.interrogator.step_log import StepLog, load_steps, record_steps, warm

TEXTS = ["text food pizza", "text sea fish question", "oslo claim", "nothing like it"]


@pytest.fixture
def targets(words):
    return [words.target(text) for text in TEXTS]


@pytest.fixture
def vectors(targets):
    return np.array([target.vector for target in targets])


@pytest.fixture
def log(few, words, targets):
    return _log(few, words, targets)


def _log(few, words, targets, **options):
    answerer = OptionAnswerer(words, MemoryCache())
    rng = np.random.default_rng(0)
    return record_steps(targets, answerer, questions=few, rng=rng, **({"steps": 60} | options))


@pytest.fixture
def point(few):
    """The shipped point, over the few questions."""
    shipped = load_point(load_questions())
    actions = shipped.actions.model_copy(update={"names": few.names})
    return shipped.model_copy(update={"actions": actions})


def test_sessions_are_whole_and_there_are_enough_steps(log):
    assert 60 <= len(log) < 60 + 5
    assert (np.diff(log.session) >= 0).all()
    first = np.flatnonzero(np.diff(log.session, prepend=-1))
    np.testing.assert_array_equal(log.similarity[first], log.opening[first])
    inner = np.setdiff1d(np.arange(1, len(log)), first)
    np.testing.assert_array_equal(log.similarity[inner], log.after[inner - 1])
    assert (log.gain >= 0).all()
    assert ((log.gain > 0) == (log.option >= 0)).all()


def test_propensities_are_those_of_chance_among_the_eligible(log):
    mask = log.eligible_mask()
    np.testing.assert_array_equal(log.propensity, 1.0 / mask.sum(axis=1))
    assert mask[np.arange(len(log)), log.template].all()


def test_one_seed_is_one_log(few, words, targets, log):
    assert _log(few, words, targets).to_bytes() == log.to_bytes()


def test_contexts_are_those_the_chooser_saw(few, words, targets, vectors, point):
    encoder, seen = FeatureMap(point.context), []

    class Watching(Uniform):
        def choose(self, situation, rng):
            seen.append(rounded(encoder.encode(situation.context())))
            return super().choose(situation, rng)

    log = _log(few, words, targets, chooser=Watching(), steps=30)
    back = StepLog.from_bytes(log.to_bytes())
    np.testing.assert_array_equal(back.encoded(vectors, encoder), np.array(seen))


def test_sessions_solved_at_once_are_dropped(few, words, targets):
    log = _log(few, words, [words.target("text oslo"), targets[3]], stop_at=0.99)
    of_first = log.session[log.target == 0]
    lengths = np.unique(of_first, return_counts=True)[1]
    assert len(lengths) > 0
    assert lengths.min() >= 3
    solved = [words.target("text")]
    with pytest.raises(InputError, match="solved in under 3 steps"):
        _log(few, words, solved)


def test_a_warm_start_is_learning_every_step_once(log, vectors, point):
    learned, again = Learned.declared(point), Learned.declared(point)
    x = warm(learned, log, vectors)
    for row, action, reward in zip(x, log.actions, log.rewards(point.reward), strict=True):
        again.policy.learn(row, action, reward)
    assert learned.policy.updates == len(log)
    for row in x[:5]:
        np.testing.assert_allclose(
            learned.policy.distribution(row), again.policy.distribution(row), atol=1e-9
        )


@pytest.mark.slow
def test_a_warm_policy_asks_better_than_chance(few, words, targets, vectors, point):
    learned = Learned.declared(point, frozen=True)
    warm(learned, _log(few, words, targets, steps=600), vectors)
    reached = {}
    for name, chooser in (("learned", learned), ("uniform", Uniform())):
        rng = np.random.default_rng(3)
        done = [
            investigate(target, questions=few, chooser=chooser, rng=rng, limit=2,
                        answerer=OptionAnswerer(words, MemoryCache()))
            for target in targets * 20
        ]  # fmt: skip
        reached[name] = np.mean([one.similarity for one in done])
    assert reached["learned"] > reached["uniform"] + 0.03


def test_less_trust_is_less_experience(log, vectors, point):
    full, half = Learned.declared(point), Learned.declared(point)
    x = warm(full, log, vectors)
    warm(half, log, vectors, trust=0.1)
    spread = [-(p := one.policy.distribution(x[0])) @ np.log(p) for one in (full, half)]
    assert spread[0] < spread[1]


def test_a_log_of_other_questions_is_refused(log, vectors):
    learned = Learned.declared(load_point(load_questions()))
    with pytest.raises(InputError, match="the log has 5 questions, the policy 50"):
        warm(learned, log, vectors)
    assert learned.policy.updates == 0


def test_a_log_survives_its_bytes(log):
    back = StepLog.from_bytes(log.to_bytes())
    for field in dataclasses.fields(log):
        np.testing.assert_array_equal(getattr(back, field.name), getattr(log, field.name))


def _damaged(log, name, value):
    array = getattr(log, name).copy()
    array[0] = value
    return dataclasses.replace(log, **{name: array}).to_bytes()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda log: _damaged(log, "template", np.int16(99)), "questions outside 0..4"),
        (lambda log: _damaged(log, "after", np.nan), "finite float64"),
        (lambda log: _damaged(log, "propensity", 0.0), "propensities outside"),
        (lambda log: _damaged(log, "target", np.int32(-1)), "targets below 0"),
        (lambda _: b"no zip", "invalid log of the interrogator"),
        (lambda log: log.to_bytes()[:200], "invalid log of the interrogator"),
        (lambda log: dataclasses.replace(log, after=log.after[:-1]).to_bytes(), "shape"),
    ],
)
def test_from_bytes_with_damaged_or_other_bytes_says_what_is_wrong(log, content, says):
    data = content(log)
    with pytest.raises(DataError, match=says):
        StepLog.from_bytes(data)


def test_files_that_do_not_belong_together_are_refused(tmp_path, few, log):
    steps, about = tmp_path / "steps.npz", tmp_path / "steps.json"
    with pytest.raises(DataError, match="data record interrogator"):
        load_steps(few, steps, about)
    steps.write_bytes(log.to_bytes())
    digest = hashlib.sha256(log.to_bytes()).hexdigest()
    about.write_text(json.dumps({"sha256": digest, "questions": few.sha256}))
    assert len(load_steps(few, steps, about)) == len(log)
    with pytest.raises(DataError, match="questions is"):
        load_steps(load_questions(), steps, about)
    about.write_text(json.dumps({"sha256": "0" * 64, "questions": few.sha256}))
    with pytest.raises(DataError, match="sha256 is"):
        load_steps(few, steps, about)


@pytest.mark.parametrize(("count", "steps"), [(0, 10), (4, 0)])
def test_nothing_to_record_is_refused(few, words, targets, count, steps):
    with pytest.raises(InputError, match="allowed: 1 or more of both"):
        _log(few, words, targets[:count], steps=steps)
