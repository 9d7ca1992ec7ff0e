"""A corpus, questions and a model that live evaluations are tried on."""

from __future__ import annotations

import json

import numpy as np

from steersman.db.judge_cache import JudgeCache
from steersman.errors import BackendUnavailableError
from steersman.providers.judges.faithfulness import Faithfulness
from steersman.providers.judges.relevancy import Relevancy
from steersman.providers.spending_limit import Prices
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import Lineage, Passage
from steersman.retrieval.searcher import Searcher
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.evaluator import LiveEvaluator
from steersman_systems.rag_tuner.judged_answers import Answers
from steersman_systems.rag_tuner.judged_collections import Question
from steersman_systems.rag_tuner.limits import Limits
from tests.retrieval.hashed_words import HashedWords

TEXTS = {
    "pumps": "A worn bearing makes a pump hum.",
    "cables": "A cable carries forty amperes.",
    "valves": "A valve that leaks needs a seal.",
    "motors": "A motor hums when its bearing is dry.",
}
QUESTIONS = (
    Question("q1", "why does the pump hum", {"pumps": 1.0}),
    Question("q2", "how many amperes does a cable carry", {"cables": 1.0}),
    Question("q3", "what does a leaking valve need", {"valves": 1.0}),
)
ALL = np.arange(3)
WORDS = Configuration("bm25", k=2)


def passages():
    found = []
    for name, text in TEXTS.items():
        lineage = Lineage(Document(name, text).sha256, 0, len(text), chunker="whole")
        found.append(Passage(name, 0, text, lineage=lineage))
    return found


def evaluator(embedder=None, **options):
    embedder = embedder or HashedWords()
    searcher = Searcher(passages(), embedder=embedder)
    if hasattr(embedder, "begin"):
        embedder.begin()
    options.setdefault("limits", Limits(pause_s=0.0))
    return LiveEvaluator(searcher, QUESTIONS, revision="manuals@1", **options)


class Written:
    """A model whose answers are written down; it counts its calls."""

    name = "written"

    def __init__(self):
        self.answers, self.judged, self.down = 0, 0, False
        self.error = None

    def complete(self, prompt, *, max_tokens, timeout_s):
        if "PASSAGES" in prompt:
            self.answers += 1
            if self.down:
                raise BackendUnavailableError("busy", retry_after_s=None)
            return "The bearing is worn."
        if self.error is not None:
            raise self.error
        self.judged += 1
        if "noncommittal" in prompt:
            return json.dumps({"noncommittal": False, "questions": ["why does the pump hum"] * 3})
        if "contexts" in prompt.split("DATA ")[1]:
            verdict = {"number": 1, "grounds": "it says so", "supported": True}
            return json.dumps({"verdicts": [verdict]})
        return json.dumps({"statements": ["The bearing is worn."]})


def answers(model, tmp_path=None, **options):
    cache = None if tmp_path is None else JudgeCache(tmp_path / "judged.sqlite")
    words = options.pop("words", None) or HashedWords()
    measures = options.pop("measures", lambda judge: [Faithfulness(judge), Relevancy(judge, words)])
    options.setdefault("prices", Prices(call_usd=0.01))
    return Answers(model, measures, cache=cache, **options)
