"""What a scorer sees: rows that are finite, aligned with the pool, and mean what they say."""

import numpy as np
import pytest

from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.features import FEATURES, rows
from steersman_systems.evidence_selection.question import Question
from tests.systems.evidence_selection.conftest import ROWS


def _column(found, name):
    return found[:, FEATURES.index(name)]


def _state(collection, question, picks, *, size=4):
    rules = Environment(Limits(expanding="always"))
    state = rules.start(collection.pool(question, size=size))
    for name in picks:
        place = [one.id for one in state.pool.candidates].index(name)
        state = rules.step(state, place)
    return state


def test_a_row_for_every_candidate_then_expand_then_stop(collection, question):
    state = _state(collection, question, [])
    found = rows(state)
    assert found.shape == (len(state.pool) + 2, len(FEATURES))
    assert np.isfinite(found).all()
    assert _column(found, "is_expand").tolist() == [0] * len(state.pool) + [1, 0]
    assert _column(found, "is_stop").tolist() == [0] * len(state.pool) + [0, 1]


def test_what_a_picked_passage_names_shows(collection, question):
    state = _state(collection, question, ["band"])
    rush = [one.id for one in state.pool.candidates].index("rush")
    found = rows(state)
    assert _column(found, "named_by_selected")[rush] == 1
    assert _column(found, "named_by_last")[rush] == 1
    assert _column(found, "named_alone")[rush] > 0
    before = rows(_state(collection, question, []))
    assert _column(before, "named_by_selected").max() == 0


def test_novelty_and_fresh_words_fall_with_what_is_picked(collection, question):
    state = _state(collection, question, ["band"])
    band = [one.id for one in state.pool.candidates].index("band")
    found = rows(state)
    assert _column(found, "novelty")[band] == pytest.approx(0.0, abs=1e-6)
    assert _column(found, "fresh_coverage")[band] == 0.0
    assert (_column(found, "fresh_coverage") <= _column(found, "coverage") + 1e-12).all()
    before = rows(_state(collection, question, []))
    assert (_column(before, "novelty") == 1.0)[:-2].all()
    assert _column(found, "uncovered")[0] < _column(before, "uncovered")[0]


def test_the_state_is_in_every_row(collection, question):
    found = rows(_state(collection, question, ["band", "rush"]))
    assert set(_column(found, "selected")) == {2.0}
    assert set(_column(found, "unfollowed")) == {0.0}


def test_title_words_are_those_of_the_question(collection):
    question = Question("q", "Where is Hamilton?")
    state = _state(collection, question, [])
    place = [one.id for one in state.pool.candidates].index("hamilton")
    found = rows(state)
    assert _column(found, "title_asked")[place] == 1.0
    assert _column(found, "title_overlap")[place] > 0.5


def test_without_vectors_and_without_known_words_rows_are_finite():
    collection = Collection.of_texts(ROWS)
    for text in ("xyzzy", "Who drummed on the album?"):
        state = Environment().start(collection.pool(Question("q", text)))
        found = rows(state)
        assert np.isfinite(found).all()
        assert len(found) == len(state.pool) + 2


def test_passages_that_are_all_alike_have_rows_that_are_alike():
    """All candidates the same but for their names: what tells them apart is rank alone."""
    collection = Collection.of_texts([(f"p{i}", "", "the same words") for i in range(6)])
    state = Environment().start(collection.pool(Question("q", "same words")))
    found = rows(state)[:6]
    differ = {FEATURES[c] for c in range(len(FEATURES)) if np.ptp(found[:, c]) > 0}
    assert differ <= {"lexical_rank", "dense_rank", "fused_rank"}
