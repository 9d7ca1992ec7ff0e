"""Retrieval quality (nDCG, recall, MRR) and speed of keyword and dense search.

``--sets`` names folders of ``--data`` in a format of
`steersman_systems.rag_tuner.judged_collections`; default: cranfield, scifact and hotpotqa. It needs
the extra ``rag``. Each text without a cached embedding takes about 10 to 50 ms.

A set is judged on its split test, else dev, else on all its questions. No default was chosen on
these. Every difference compares two rankings of the same questions, with a 95 % interval of its
mean. A question in a conversation is searched for unchanged, and its conversation is the unit.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Figure, command
from benchmarks.units import half_width
from steersman.platform.wheel_files import state_directory
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.documents.passage import passage_text
from steersman.retrieval.embedding_cache import CachedEmbedder
from steersman.retrieval.exact_index import ExactIndex
from steersman.retrieval.passage_links import link_passages
from steersman.retrieval.rerank import CosineReranker
from steersman.retrieval.results import SearchSettings
from steersman.retrieval.searcher import Searcher
from steersman.stats import all_alike_interval
from steersman_systems.rag_tuner.hygiene import conversations
from steersman_systems.rag_tuner.judged_collections import load_judged
from steersman_systems.rag_tuner.ranking_metrics import (
    all_gold_at,
    ndcg_at,
    recall_at,
    reciprocal_rank,
)
from steersman_systems.rag_tuner.slices import units_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeVar

    from numpy.typing import NDArray

    from benchmarks.report import Options
    from steersman.retrieval.dense import Embedder
    from steersman.retrieval.documents.passage import Passage
    from steersman_systems.rag_tuner.judged_collections import JudgedCollection

    Floats = NDArray[np.float64]
    T = TypeVar("T")

DEFAULT = ("cranfield", "scifact", "hotpotqa")
GOALS = {
    "cranfield": {"bm25": 0.36, "dense": 0.370, "convex": 0.408},
    "scifact": {"bm25": 0.679, "dense": 0.645, "convex": 0.731},
}
SETTINGS = {
    "bm25": SearchSettings("bm25"),
    "dense": SearchSettings("dense"),
    "convex": SearchSettings(),
    "rrf": SearchSettings(fusion="rrf"),
    "convex, expanded": SearchSettings(expansion=True),
    "bm25, cosine reranked": SearchSettings("bm25", rerank="cosine"),
}
COMPARED = (
    ("convex", "bm25"),
    ("convex", "dense"),
    ("convex", "rrf"),
    ("convex, expanded", "convex"),
    ("bm25, cosine reranked", "bm25"),
)
QUICK = 60
VECTORS = 20_000
INDEXED = 5_000


@dataclass(frozen=True)
class SetResults:
    """Results on one set: measure -> settings -> (questions,)."""

    collection: JudgedCollection
    measured: dict[str, dict[str, Floats]]
    expand_ms: Floats


def run(options: Options) -> Iterator[Figure]:
    """Measure the chosen sets."""
    embedder = CachedEmbedder(MiniLM(), state_directory() / "embeddings.sqlite")
    passages: list[Passage] = []
    queries: list[str] = []
    for name in options.sets or (DEFAULT[:1] if options.quick else DEFAULT):
        judged = _judged(name, options, embedder)
        passages += judged.collection.passages
        queries += [question.text for question in judged.collection.questions]
        yield from _quality(name, judged)
    yield from _keyword_speed(passages, queries, options)
    yield from _dense_speed(passages, queries, embedder, options)


# -- quality --------------------------------------------------------------------------------------


def _judged(name: str, options: Options, embedder: Embedder) -> SetResults:
    every = load_judged(options.folder(name, "its publisher"), missing="unfindable")
    collection = every.split(every.held_out)
    print(f"{name}: {len(collection.passages):,} passages to embed and link", file=sys.stderr)
    searcher = Searcher(
        collection.passages,
        embedder=embedder,
        links=link_passages(collection.passages),
        rerankers={"cosine": CosineReranker(embedder)},
    )
    questions = collection.questions[: QUICK if options.quick else None]
    rows: list[dict[str, tuple[float, ...]]] = []
    expand_ms = []
    for question in questions:
        scored = searcher.scored(question.text)
        row = {}
        for label, settings in SETTINGS.items():
            ranked = collection.documents(scored.rank(settings))
            row[label] = tuple(
                measure(ranked, question.gains, 10)
                for measure in (ndcg_at, recall_at, reciprocal_rank, all_gold_at)
            )
        rows.append(row)
        expand_ms.append(scored.find(SETTINGS["convex, expanded"]).timings_ms["expand"])
    measured = {
        measure: {label: np.array([row[label][i] for row in rows]) for label in SETTINGS}
        for i, measure in enumerate(("nDCG@10", "recall@10", "MRR@10", "all gold@10"))
    }
    return SetResults(collection, measured, np.array(expand_ms))


def _quality(name: str, judged: SetResults) -> Iterator[Figure]:
    ndcg = judged.measured["nDCG@10"]
    questions = judged.collection.questions[: len(ndcg["bm25"])]
    unit = units_of(conversations(questions))[1]
    split = judged.collection.held_out or "all"
    about = f"{name} ({split}, {len(ndcg['bm25'])} questions)"
    for label, values in ndcg.items():
        goal = GOALS.get(name, {}).get(label)
        low, high = _interval(values, unit)
        mean = float(values.mean())
        # Goals are given to three digits.
        yield Figure(
            f"{about}, {label}: nDCG@10", mean, low, high,
            goal=None if goal is None else f">= {goal:g}",
            holds=None if goal is None else round(mean, 3) >= goal,
        )  # fmt: skip
    for one, other in COMPARED:
        ahead = ndcg[one] - ndcg[other]
        yield _difference(f"{about}, {one} over {other}: nDCG@10", ahead, unit)
    for measure in ("recall@10", "MRR@10"):
        found = {label: float(values.mean()) for label, values in judged.measured[measure].items()}
        yield Figure(f"{about}, convex: {measure}", found.pop("convex"), peers=found)
    if any(len(question.gains) > 1 for question in judged.collection.questions):
        whole = judged.measured["all gold@10"]
        found = {label: float(values.mean()) for label, values in whole.items()}
        yield Figure(f"{about}, convex, expanded: all gold@10", found.pop("convex, expanded"),
                     peers=found)  # fmt: skip
        yield _difference(
            f"{about}, expanded over not: all gold@10",
            whole["convex, expanded"] - whole["convex"],
            unit,
        )
    yield Figure(f"{about}: following links, p50", float(np.median(judged.expand_ms)), unit="ms")


def _difference(name: str, differences: Floats, unit: NDArray[np.intp]) -> Figure:
    low, high = _interval(differences, unit, least=-1.0)
    return Figure(name, float(differences.mean()), low, high)


def _interval(values: Floats, unit: NDArray[np.intp], *, least: float = 0.0) -> tuple[float, float]:
    """Return the 95 % interval of a mean of numbers in [least, 1]; NaN for one unit."""
    units = len(np.unique(unit))
    if units > 1 and np.ptp(values) == 0:  # no spread in the sample: the mean is still uncertain
        value = float(np.clip(values[0], least, 1.0))
        low, high = all_alike_interval(value, units, low=least, high=1.0)
        return low, high
    mean, half = float(values.mean()), half_width(values, unit)
    return max(mean - half, least), min(mean + half, 1.0)


# -- speed ----------------------------------------------------------------------------------------


def _keyword_speed(
    passages: Sequence[Passage], queries: Sequence[str], options: Options
) -> Iterator[Figure]:
    import bm25s  # noqa: PLC0415 - the extra rag

    pool = [passages[i % len(passages)] for i in range(INDEXED)]
    texts = [passage_text(passage) for passage in pool]
    start = time.perf_counter()
    searcher = Searcher(pool)
    ours_s = time.perf_counter() - start
    start = time.perf_counter()
    peer = bm25s.BM25()
    try:
        peer.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    except ValueError as wrong:  # the index rejects passages without words
        print(f"keyword speeds are left out: bm25s: {wrong}", file=sys.stderr)
        return
    theirs_s = time.perf_counter() - start
    yield Figure(f"keyword index of {INDEXED:,} passages", ours_s, unit="s", goal="< 5",
                 holds=ours_s < 5, peers={"bm25s": theirs_s})  # fmt: skip

    def ours(query: str) -> None:
        searcher.rank(query, SETTINGS["bm25"])

    def theirs(query: str) -> None:
        peer.retrieve(bm25s.tokenize(query, show_progress=False), k=10, show_progress=False)

    asked = list(queries[: 50 if options.quick else 600])
    one, other = _paired_ms(asked, ours, theirs)
    ratio = float(np.median(one) / np.median(other))
    yield Figure(
        f"keyword query over {INDEXED:,} passages, p50 over bm25s' own", ratio, goal="<= 1.3",
        holds=ratio <= 1.3,
        peers={"ours, ms": float(np.median(one)), "bm25s, ms": float(np.median(other))},
    )  # fmt: skip


def _dense_speed(
    passages: Sequence[Passage], queries: Sequence[str], embedder: Embedder, options: Options
) -> Iterator[Figure]:
    rows = _vectors([passage_text(passage) for passage in passages[:VECTORS]], embedder)
    asked = list(embedder.encode(list(queries[: 50 if options.quick else 600])))
    index = ExactIndex(rows)

    def ours(vector: NDArray[np.float32]) -> None:
        index.search(vector, 10)

    def theirs(vector: NDArray[np.float32]) -> None:
        scores = rows @ vector
        near = np.argpartition(scores, -10)[-10:]
        near[np.argsort(-scores[near])]

    one, other = _paired_ms(asked, ours, theirs)
    exact = rows.astype(np.float64)
    recall = np.mean(
        [
            len({*index.search(vector, 10)[0]} & {*np.argsort(-(exact @ vector))[:10]}) / 10
            for vector in asked[:100]
        ]
    )
    p50 = float(np.median(one))
    yield Figure(f"dense search over {len(rows):,} vectors, p50", p50, unit="ms", goal="<= 5",
                 holds=p50 <= 5, peers={"numpy, all in full": float(np.median(other))})  # fmt: skip
    yield Figure(f"dense search over {len(rows):,} vectors, recall@10 of float64",
                 float(recall), goal=">= .98", holds=bool(recall >= 0.98))  # fmt: skip


def _vectors(texts: Sequence[str], embedder: Embedder) -> NDArray[np.float32]:
    """Return 20,000 vectors: those of the texts, then interpolations of two."""
    known = embedder.encode(texts)
    rng = np.random.default_rng(0)
    pairs = rng.integers(len(known), size=(VECTORS - len(known), 2))
    share = rng.random((len(pairs), 1), dtype=np.float32)
    between = share * known[pairs[:, 0]] + (1 - share) * known[pairs[:, 1]]
    between /= np.linalg.norm(between, axis=1, keepdims=True)
    return np.concatenate([known, between])


def _paired_ms(
    asked: Sequence[T], one: Callable[[T], None], other: Callable[[T], None]
) -> tuple[Floats, Floats]:
    """Return the times of two methods per query; they alternate in going first."""
    for query in asked[:20]:
        one(query)
        other(query)
    took = np.zeros((2, len(asked)))
    for i, query in enumerate(asked):
        for which in (0, 1) if i % 2 else (1, 0):
            start = time.perf_counter()
            (one, other)[which](query)
            took[which, i] = 1e3 * (time.perf_counter() - start)
    return took[0], took[1]


if __name__ == "__main__":
    command("retrieval", run, doc=__doc__)
