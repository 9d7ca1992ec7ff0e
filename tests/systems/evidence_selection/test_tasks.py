"""A question as a task: options by name with their features, and rewards by declared terms."""

from dataclasses import replace

import numpy as np
import pytest

from steersman.policies.sequence import EXPAND, STOP
from steersman_systems.evidence_selection.environment import (
    EXPAND_ACTION,
    STOP_ACTION,
    Environment,
    Limits,
)
from steersman_systems.evidence_selection.features import FEATURES, rows
from steersman_systems.evidence_selection.reward import RewardTerms, completeness, containment
from steersman_systems.evidence_selection.tasks import EvidenceTask


@pytest.fixture
def pool(collection, question):
    """Only the band's album and one more: who it names has to be brought in."""
    return collection.pool(question, size=2)


def _took(task, standing, name):
    return task.take(standing, list(task.options(standing).names).index(name))


def test_options_are_candidates_first_each_with_the_row_of_its_place(pool):
    task = EvidenceTask(pool)
    standing = task.begin()
    options = task.options(standing)
    ids = [one.id for one in pool.candidates]
    # Nothing is picked, so nothing can be followed.
    assert (options.names, options.candidates) == ([*ids, STOP], len(ids))
    every = rows(standing.state)
    assert np.array_equal(options.rows[:-1], every[: len(ids)])
    assert np.array_equal(options.rows[-1], every[-1])
    assert options.rows.shape[1] == len(FEATURES)

    after = _took(task, standing, "band")
    options = task.options(after)
    assert options.names == [*(one for one in ids if one != "band"), EXPAND, STOP]
    assert after.places[-2:].tolist() == [EXPAND_ACTION, STOP_ACTION]
    assert np.array_equal(options.rows[-2:], rows(after.state)[-2:])


def test_expanding_brings_new_options_and_stopping_ends(pool):
    task = EvidenceTask(pool)
    after = _took(task, _took(task, task.begin(), "band"), EXPAND)
    assert "rush" in task.options(after).names
    ended = _took(task, after, STOP)
    assert ended.stopped
    assert task.options(ended) is None
    assert task.options(after) is not None, "states are never changed"


def test_a_selection_that_is_full_has_no_options(pool):
    task = EvidenceTask(pool, Environment(Limits(picks=1, may_stop=False)))
    assert task.options(_took(task, task.begin(), "band")) is None


def test_rewards_and_potentials_are_the_declared_terms(pool):
    question = replace(pool.question, answers=("Rush Union",))
    terms = RewardTerms(finals=((0.7, containment), (0.3, completeness)), information=0.5)
    task = EvidenceTask(replace(pool, question=question), terms=terms)
    begun = task.begin()
    after = _took(task, begun, "band")
    known = completeness(after.state)
    assert 0.0 < known <= 1.0
    assert task.reward(after) == pytest.approx(0.7 + 0.3 * known)
    assert (task.potential(begun), task.potential(after)) == (0.0, pytest.approx(0.5 * known))
    assert task.potential(_took(task, after, STOP)) == 0.0
    assert EvidenceTask(pool).potential(after) == 0.0
    assert task.id == question.id
