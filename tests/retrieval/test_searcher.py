"""A searcher finds by words, meaning and links, and goes on when a part of it is away."""

import logging
from threading import Thread

import numpy as np
import pytest

from steersman.errors import BackendUnavailableError, InputError, StoreError
from steersman.retrieval.documents.passage import passage_text
from steersman.retrieval.exact_index import ExactIndex
from steersman.retrieval.passage_links import TITLE, Links
from steersman.retrieval.ranking import convex, rrf
from steersman.retrieval.rerank import CosineReranker
from steersman.retrieval.results import SearchSettings
from steersman.retrieval.searcher import Searcher, passage_index
from tests.retrieval.hashed_words import HashedWords
from tests.retrieval.passages import whole

TEXTS = (
    "a wing lifts an aeroplane",
    "heat flows through a plate",
    "the plate is of copper",
    "a propeller drives an aeroplane",
    "copper conducts heat",
)
PASSAGES = whole(*TEXTS, titles=("Wing", "Heat", "Plate", "Propeller", "Copper"))
EMBEDDER = HashedWords()


class Away:
    """An embedder or index that fails as often as it is told to."""

    def __init__(self, inner, error, times=10**6):
        self.inner, self.error, self.times = inner, error, times
        self.name, self.size = getattr(inner, "name", ""), inner.size

    def __len__(self):
        return len(self.inner)

    def encode(self, texts):
        self._fail()
        return self.inner.encode(texts)

    def search(self, vector, k):
        self._fail()
        return self.inner.search(vector, k)

    def _fail(self):
        self.times -= 1
        if self.times >= 0:
            raise self.error


class LongestFirst:
    """A reranker that likes long texts, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def scores(self, query, texts):
        self.asked.extend(texts)
        return np.array([len(text) for text in texts], np.float32)


def ticking():
    """Return a clock that moves a millisecond whenever it is read."""
    now = 0.0

    def clock():
        nonlocal now
        now += 0.001
        return now

    return clock


@pytest.fixture(scope="module")
def searcher():
    links = Links.of_pairs(5, [(1, 3, TITLE), (2, 4, TITLE)])
    rerankers = {"cosine": CosineReranker(EMBEDDER), "longest": LongestFirst()}
    return Searcher(PASSAGES, embedder=EMBEDDER, links=links, rerankers=rerankers)


def engines(query):
    words = passage_index([passage_text(one) for one in PASSAGES]).ranked(query, 100)
    rows = EMBEDDER.encode([passage_text(one) for one in PASSAGES])
    return words, ExactIndex(rows).search(EMBEDDER.encode([query])[0], 100)


def test_each_variant_ranks_as_its_engines_do(searcher):
    query = "what lifts the aeroplane"
    words, (near, cosines) = engines(query)
    found = {name: searcher.rank(query, SearchSettings(name)) for name in ("bm25", "dense")}
    assert found["bm25"].tolist() == words.positions.tolist()
    assert words.positions[0] == 0
    assert found["dense"].tolist() == near.tolist()
    for name, fuse in (("convex", convex), ("rrf", rrf)):
        settings = SearchSettings(fusion=name, fusion_weight=0.3)
        meaning = type(words)(near, cosines)
        assert (
            searcher.rank(query, settings).tolist() == fuse(words, meaning, 0.3).positions.tolist()
        )


def test_a_hit_says_where_it_comes_from(searcher):
    found = searcher.search("what lifts the aeroplane", SearchSettings(k=2))
    first = found.hits[0]
    assert (first.position, first.passage, first.expanded_from) == (0, PASSAGES[0], None)
    assert dict(first.ranks) == {"bm25": 1, "dense": 1}
    assert first.score == pytest.approx(1.0)
    assert (len(found.hits), found.degraded) == (2, ())


@pytest.mark.parametrize("k", [1, 3, 100])
def test_there_are_at_most_k_hits(searcher, k):
    assert len(searcher.search("heat", SearchSettings(k=k)).hits) == min(k, len(PASSAGES))


def test_words_alone_find_only_what_shares_a_word(searcher):
    assert searcher.search("zebra", SearchSettings("bm25")).hits == ()


def test_a_link_brings_what_no_engine_found(searcher):
    settings = SearchSettings("bm25", expansion=True)
    plain = searcher.rank("which plate flows", SearchSettings("bm25"))
    found = searcher.search("which plate flows", settings)
    assert 3 not in plain
    (brought,) = (hit for hit in found.hits if hit.position == 3)
    assert brought.expanded_from == "d1#0"
    assert dict(brought.ranks) == {}


def test_a_reranker_orders_the_first_and_leaves_the_rest():
    texts = [f"heat {'x ' * length}" for length in range(40)]
    reranker = LongestFirst()
    searcher = Searcher(whole(*texts), rerankers={"longest": reranker})
    before = searcher.rank("heat", SearchSettings("bm25", k=40)).tolist()
    found = searcher.search("heat", SearchSettings("bm25", k=40, rerank="longest"))
    after = [hit.position for hit in found.hits]
    assert len(reranker.asked) == 20
    assert after == sorted(before[:20], reverse=True) + before[20:]
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)


def test_many_settings_ask_each_engine_once():
    embedder, reranker = HashedWords(), LongestFirst()
    searcher = Searcher(PASSAGES, embedder=embedder, rerankers={"longest": reranker})
    embedder.asked.clear()
    scored = searcher.scored("heat of a plate")
    for weight in np.linspace(0, 1, 11):
        for rerank in ("off", "longest"):
            settings = SearchSettings(fusion_weight=float(weight), rerank=rerank)
            assert (
                scored.rank(settings).tolist()
                == searcher.rank("heat of a plate", settings).tolist()
            )
    embedder_once = [text for text in embedder.asked if text == "heat of a plate"]
    assert len(embedder_once) == 1 + 22  # the scored query once, each search on its own once
    scored_only = LongestFirst()
    again = Searcher(PASSAGES, rerankers={"longest": scored_only}).scored("heat of a plate")
    for k in (1, 2, 3):
        again.rank(SearchSettings("bm25", k=k, rerank="longest"))
    assert len(scored_only.asked) == len(set(scored_only.asked))


def test_times_are_told_for_the_parts_that_a_setting_needs():
    searcher = Searcher(
        PASSAGES, embedder=EMBEDDER, rerankers={"longest": LongestFirst()}, clock=ticking()
    )
    scored = searcher.scored("heat")
    every = scored.find(SearchSettings(rerank="longest")).timings_ms
    assert list(every) == ["embed", "dense", "bm25", "fuse", "rerank"]
    assert every["bm25"] == pytest.approx(1.0)
    assert list(scored.find(SearchSettings("bm25")).timings_ms) == ["bm25"]
    assert list(scored.find(SearchSettings("dense")).timings_ms) == ["embed", "dense"]


AWAY = [BackendUnavailableError("no answer in 2 s"), OSError("no route")]


@pytest.mark.parametrize("error", AWAY)
@pytest.mark.parametrize("variant", ["hybrid", "dense"])
def test_without_its_embedder_it_searches_by_words_and_says_so(error, variant, caplog):
    vectors = ExactIndex(EMBEDDER.encode(TEXTS))
    searcher = Searcher(PASSAGES, embedder=Away(EMBEDDER, error, times=2), vectors=vectors)
    by_words = searcher.rank("copper plate", SearchSettings("bm25")).tolist()
    with caplog.at_level(logging.WARNING):
        for count in (1, 2):
            found = searcher.search("copper plate", SearchSettings(variant))
            assert [hit.position for hit in found.hits] == by_words
            assert found.degraded == ("dense",)
            assert searcher.failures == {"dense": count}
        healthy = searcher.search("copper plate", SearchSettings(variant))
    assert (healthy.degraded, searcher.failures) == ((), {"dense": 2})
    assert len(healthy.hits) == len(PASSAGES)
    own = (one for one in caplog.records if one.name.startswith("steersman."))
    told = [record.getMessage() for record in own]
    assert told == [
        f"searching without dense until it answers again: {error}",
        "searching with dense again",
    ]


def test_without_its_index_it_searches_by_words():
    vectors = Away(ExactIndex(EMBEDDER.encode(TEXTS)), StoreError("gone"))
    found = Searcher(PASSAGES, embedder=EMBEDDER, vectors=vectors).search("copper")
    assert found.degraded == ("dense",)
    assert [hit.passage.title for hit in found.hits] == ["Copper", "Plate"]


def test_without_its_reranker_the_order_stays():
    class Gone:
        def scores(self, query, texts):
            raise BackendUnavailableError("no answer")

    searcher = Searcher(PASSAGES, rerankers={"gone": Gone()})
    found = searcher.search("copper plate", SearchSettings("bm25", rerank="gone"))
    assert [hit.position for hit in found.hits] == (
        searcher.rank("copper plate", SearchSettings("bm25")).tolist()
    )
    assert (found.degraded, searcher.failures) == (("rerank",), {"rerank": 1})


def test_an_embedder_that_gives_nonsense_is_an_error_not_a_fallback():
    class Twice(HashedWords):
        def encode(self, texts):
            return 2 * super().encode(texts)

    vectors = ExactIndex(EMBEDDER.encode(TEXTS))
    with pytest.raises(InputError, match="norm 2"):
        Searcher(PASSAGES, embedder=Twice(), vectors=vectors).search("copper")


@pytest.mark.parametrize("scores", [[1.0], [np.nan] * 2])
def test_a_reranker_that_gives_nonsense_is_an_error(scores):
    class Nonsense:
        def scores(self, query, texts):
            return np.array(scores)

    searcher = Searcher(PASSAGES, rerankers={"bad": Nonsense()})
    with pytest.raises(InputError, match="the reranker bad returned"):
        searcher.search("copper", SearchSettings("bm25", rerank="bad"))


def test_a_collection_without_vectors_is_searched_by_words():
    searcher = Searcher(PASSAGES)
    assert searcher.search("copper").degraded == ("dense",)
    assert searcher.failures == {}
    with pytest.raises(InputError, match="these passages have no vectors"):
        searcher.search("copper", SearchSettings("dense"))


def test_an_empty_collection_has_no_hits():
    searcher = Searcher([], embedder=EMBEDDER)
    for variant in ("bm25", "dense", "hybrid"):
        assert searcher.search("copper", SearchSettings(variant)).hits == ()


def test_several_threads_search_alike(searcher):
    wanted = {one: searcher.rank(one).tolist() for one in TEXTS}
    found = {}

    def search(query):
        found[query] = [searcher.rank(query).tolist() for _ in range(20)]

    threads = [Thread(target=search, args=(query,)) for query in TEXTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {query: [wanted[query]] * 20 for query in TEXTS}


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (
            {"vectors": ExactIndex(np.eye(5, dtype=np.float32))},
            "vectors need an embedder for queries",
        ),
        (
            {"embedder": EMBEDDER, "vectors": ExactIndex(np.eye(5, dtype=np.float32))},
            "hashed-words has dimension 32, but the passage vectors have 5",
        ),
        (
            {"embedder": EMBEDDER, "vectors": ExactIndex(np.eye(32, dtype=np.float32))},
            "32 vectors for 5 passages",
        ),
        ({"links": Links.of_pairs(4, [])}, "links cover 4 passages, but there are 5"),
        ({"rerankers": {"off": LongestFirst()}}, "a reranker is named 'off'"),
    ],
)
def test_parts_that_do_not_fit_are_refused_at_once(parts, says):
    with pytest.raises(InputError, match=says):
        Searcher(PASSAGES, **parts)


@pytest.mark.parametrize("query", ["", " \n", "x" * 20_001])
def test_a_query_out_of_range_is_refused(searcher, query):
    with pytest.raises(InputError, match="allowed: 1 to 20,000"):
        searcher.search(query)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"expansion": True}, "have no links"),
        ({"rerank": "nli"}, "rerank is 'nli'; this searcher has off$"),
    ],
)
def test_settings_that_the_searcher_cannot_do_are_refused(settings, says):
    with pytest.raises(InputError, match=says):
        Searcher(PASSAGES).search("copper", SearchSettings("bm25", **settings))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"variant": "sparse"}, "allowed: bm25, dense, hybrid"),
        ({"k": 0}, "k is 0; allowed: 1 to 100"),
        ({"k": 101}, "k is 101"),
        ({"k": True}, "k is True"),
        ({"k": 2.5}, "k is 2.5"),
        ({"k": 5.0}, "k is 5.0"),
        ({"fusion": "max"}, "allowed: convex, rrf"),
        ({"fusion_weight": 1.5}, "fusion_weight is 1.5; allowed: 0 to 1"),
        ({"fusion_weight": float("nan")}, "fusion_weight is nan"),
    ],
)
def test_settings_out_of_range_are_refused(settings, says):
    with pytest.raises(InputError, match=says):
        SearchSettings(**settings)
