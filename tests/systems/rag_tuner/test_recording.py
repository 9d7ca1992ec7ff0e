"""Recording: what a searcher finds under every setting, and nothing when an engine is away."""

import numpy as np
import pytest

pytest.importorskip("bm25s")

from steersman.errors import BackendUnavailableError, DataError, InputError
from steersman.retrieval.passage_links import link_titles
from steersman.retrieval.rerank import CosineReranker
from steersman.retrieval.results import SearchSettings
from steersman.retrieval.searcher import Searcher
from steersman_systems.rag_tuner.configuration import Configuration, Space
from steersman_systems.rag_tuner.judged_collections import JudgedCollection, Question
from steersman_systems.rag_tuner.ranking_metrics import recall_at
from steersman_systems.rag_tuner.recorder import rankings_of, record
from tests.retrieval.hashed_words import HashedWords
from tests.retrieval.passages import whole

TEXTS = [
    "the pump hums when its bearing is worn",
    "grease the bearing of the pump every year",
    "a relief valve opens at ten bar",
    "cables carry forty amperes and fuses protect cables",
    "the relief valve protects the pump",
    "bearings are sealed for life in newer pumps",
]
SPACE = Space(("bm25", "dense", "hybrid"), (1, 2, 3), (False, True), (0.0, 0.5, 1.0), (False, True),
              ("plain",))  # fmt: skip


def collection(found):
    questions = (
        Question("q1", "pump bearing", {found[0].doc_id: 2.0, found[1].doc_id: 1.0}, "", "pumps"),
        Question("q2", "what protects cables", {found[3].doc_id: 1.0}),
    )
    return JudgedCollection("small", tuple(found), questions)


def searcher(found, embedder):
    return Searcher(
        found,
        embedder=embedder,
        links=link_titles(found),
        rerankers={"cosine": CosineReranker(embedder)},
    )


def test_every_configuration_is_what_a_search_with_it_finds():
    found = whole(*TEXTS)
    judged, engine = collection(found), searcher(found, HashedWords())
    recorded = record(engine, judged, SPACE, about={"embedder": "hashed"})
    assert recorded.about["reranker"] == "cosine"
    assert (recorded.queries, recorded.categories) == (("q1", "q2"), ("pumps", ""))
    assert (recorded.latency_ms > 0).all()
    for one in SPACE.all:
        batch = recorded.evaluate(one, np.arange(2))
        for row, question in enumerate(judged.questions):
            settings = SearchSettings(
                variant=one.variant, k=one.k, fusion_weight=one.fusion_weight,
                rerank="cosine" if one.rerank else "off", expansion=one.expansion,
            )  # fmt: skip
            ranked = judged.documents(engine.rank(question.text, settings).tolist())
            assert batch.quality[row, 0] == pytest.approx(recall_at(ranked, question.gains, one.k))
    assert recorded.holds(Configuration("rrf", k=3))


def test_rankings_do_not_depend_on_k():
    assert len(rankings_of(SPACE)) == (1 + 1 + 3) * 2 * 2


class Away(HashedWords):
    """An embedder that fails once the passages are embedded."""

    def encode(self, texts):
        if len(texts) == 1:
            raise BackendUnavailableError("no answer")
        return super().encode(texts)


def test_nothing_is_recorded_while_an_engine_is_away():
    found = whole(*TEXTS)
    with pytest.raises(DataError, match="nothing is recorded"):
        record(searcher(found, Away()), collection(found), SPACE, about={})


def test_words_alone_are_recorded_where_nothing_embeds():
    found = whole(*TEXTS)
    words = Space(("bm25",), (1, 2), (False,), (0.5,), (False, True), ("plain",))
    engine = Searcher(found, links=link_titles(found))
    recorded = record(engine, collection(found), words, about={})
    assert recorded.keys == (("bm25", False, 0.5, False), ("bm25", False, 0.5, True))


def test_prompts_cannot_be_recorded():
    several = Space(("bm25",), (1,), (False,), (0.5,), (False,), ("plain", "terse"))
    found = whole(*TEXTS)
    with pytest.raises(InputError, match="prompts are plain, terse"):
        record(searcher(found, HashedWords()), collection(found), several, about={})
