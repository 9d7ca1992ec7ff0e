"""A pool holds what is retrieved, grows along links, and says where each came from."""

import pickle

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.retrieval.bm25 import Bm25, query_terms, stem
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.question import Question, Turn
from tests.retrieval.hashed_words import HashedWords
from tests.systems.evidence_selection.conftest import ROWS


def test_candidates_are_those_of_both_rankings_best_first(pool):
    assert len(pool) == 4
    assert "band" in [one.id for one in pool.candidates]
    assert (np.diff(pool.fused) <= 0).all()
    assert pool.ranks[:, 2].tolist() == [0, 1, 2, 3]
    assert pool.lexical.max() == pytest.approx(1.0)
    own = pool.vectors @ pool.query.vector
    assert np.allclose(own, pool.dense, atol=1e-6)


def test_expanding_brings_in_what_a_candidate_names(collection, question):
    pool = collection.pool(question, size=1)
    place = [one.id for one in pool.candidates].index("band")
    assert pool.leads_further([place])
    grown = pool.expanded(place)
    assert {"rush"} <= {one.id for one in grown.candidates} - {"band"}
    rush = [one.id for one in grown.candidates].index("rush")
    assert grown.hops[rush] == 1
    assert grown.brought_by[rush] == place
    assert grown.led[place, rush] & 1
    assert len(pool) == 1, "the pool that was expanded stays as it was"
    then = grown.expanded(rush)
    assert then.hops[[one.id for one in then.candidates].index("neil")] == 2
    assert then.expanded(rush) is then, "nothing new: the very same pool"


def test_what_was_brought_in_ranks_where_its_score_would(collection, question):
    whole = collection.pool(question, size=8)
    small = collection.pool(question, size=4)
    place = [one.id for one in small.candidates].index("band")
    grown = small.expanded(place)
    assert (grown.ranks[len(small) :] <= len(small)).all()
    assert np.allclose(grown.fused[: len(small)], whole.fused[:4])


def test_no_candidates_where_nothing_shares_a_word():
    collection = Collection.of_texts(ROWS)
    pool = collection.pool(Question("q", "xyzzy plugh"))
    assert len(pool) == 0
    assert pool.vectors is None
    assert pool.covered.shape == (0, 0)


def test_a_pool_travels_without_the_engines(pool):
    copy = pickle.loads(pickle.dumps(pool))  # noqa: S301 - our own bytes, as Ray sends them
    assert [one.id for one in copy.candidates] == [one.id for one in pool.candidates]
    assert np.array_equal(copy.expanded(0).positions, pool.expanded(0).positions)
    with pytest.raises(InputError, match="copy without engines"):
        copy.collection.pool(pool.question)


def test_sizes_ids_and_counts_that_cannot_be(collection, question):
    for size in (0, 101, True):
        with pytest.raises(InputError, match="size"):
            collection.pool(question, size=size)
    with pytest.raises(InputError, match="duplicate passage id"):
        Collection.of_texts([("a", "", "x"), ("a", "", "y")])
    with pytest.raises(InputError, match="action"):
        Collection.of_texts([("stop", "", "x")])
    with pytest.raises(InputError, match="at least one"):
        Collection([])
    with pytest.raises(InputError, match="vectors"):
        Collection.of_texts(ROWS, embedder=HashedWords(), vectors=np.ones((1, 32), np.float32))


def test_questions_and_turns_that_cannot_be():
    with pytest.raises(InputError, match="has no text"):
        Question("q", "  ")
    with pytest.raises(InputError, match="no id"):
        Question("", "x")
    with pytest.raises(InputError, match="speaker"):
        Turn("robot", "x")


def test_a_query_form_is_searched_for_instead_of_the_question(collection):
    asked = Question("q", "And he?", history=(Turn("user", "Who is Neil Peartree?"),))
    pool = collection.pool(asked, query="Neil Peartree", size=1)
    assert pool.candidates[0].id in {"neil", "rush"}
    assert pool.question.text == "And he?"


@pytest.mark.slow
def test_a_query_keeps_scores_of_what_it_found_alone():
    rows = [(f"p{n}", "", f"about subject{n % 1000} alone") for n in range(3_000)]
    large = Collection.of_texts(rows)
    kept = large.query("What of subject7?").lexical
    assert kept.positions.tolist() == [7, 1007, 2007]
    assert kept.scores.nbytes + kept.positions.nbytes == 3 * 8
    texts = [text for _, _, text in rows]
    every = Bm25(texts, k1=1.2, stem=stem, query_terms=query_terms).scores("What of subject7?")
    assert kept.at(np.arange(3_000)).tolist() == every.tolist()
    assert kept.highest == every.max()
    assert kept.best(2).positions.tolist() == [7, 1007]
    none = large.query("zebra").lexical
    assert (none.highest, none.at(np.array([5, 2])).tolist()) == (0.0, [0.0, 0.0])
    assert len(none.best(5).positions) == 0
