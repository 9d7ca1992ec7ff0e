"""Hits, wrong hits and costs of the assistant's cache; fit of its arrival laws.

``--sets``: ``laws``, ``stream``, ``paraphrases``, ``costs``; default: all. ``laws`` and
``paraphrases`` read --data and need the extra ``bench``. ``stream`` and ``costs`` use only files
that the package ships or fetches. ``paraphrases`` also needs ``rag``: a minute for 4,000 pairs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.stats import rankdata

from benchmarks.arrival_laws import law_figures, read_columns
from benchmarks.report import Figure, command
from benchmarks.shares import share
from steersman.errors import DataError
from steersman.retrieval.bm25 import words
from steersman.retrieval.dense import MiniLM
from steersman_systems.assistant.arrivals import arrival_times, arrivals, expected_arrivals
from steersman_systems.assistant.cache import CacheTiers, choose_threshold
from steersman_systems.assistant.lexical import hashed_counts
from steersman_systems.assistant.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.report import Options

PARAPHRASES = "github.com/zilliztech/GPTCache, examples/benchmark/similiar_qqp_full.json.gz"
WRONG_COSTS = (1.0, 4.0)
THRESHOLDS = (0.8, 0.9, 0.95, 0.97, 0.99, 1.0)


def run(options: Options) -> Iterator[Figure]:
    """Measure the chosen sets."""
    parts = {
        "laws": law_figures,
        "stream": _stream_figures,
        "paraphrases": _paraphrase_figures,
        "costs": _cost_figures,
    }
    unknown = sorted(set(options.sets) - set(parts))
    if unknown:
        message = f"unknown set {', '.join(unknown)}; known are {', '.join(parts)}"
        raise DataError(message)
    for name, figures in parts.items():
        if not options.sets or name in options.sets:
            yield from figures(options)


# Labelled paraphrases ----------------------------------------------------------------------------


def _paraphrase_figures(options: Options) -> Iterator[Figure]:
    """Yield figures of a threshold, chosen on half of the pairs and measured on the other half."""
    one, other, same = _pairs(options)
    rng = np.random.default_rng(1)
    train = rng.permutation(len(same)) < len(same) // 2
    encoder = MiniLM()
    dense = np.sum(encoder.encode(one) * encoder.encode(other), axis=1)
    peers = {
        "tf-idf of hashed words and n-grams": _tfidf_cosines(one, other),
        "Jaccard of words": np.array([_jaccard(a, b) for a, b in zip(one, other, strict=True)]),
    }
    yield Figure(
        f"paraphrases: area under ROC of the MiniLM cosine, {int((~train).sum())} held-out pairs",
        _area(dense[~train], same[~train]),
        peers={name: _area(s[~train], same[~train]) for name, s in peers.items()},
    )
    for cost in WRONG_COSTS:
        rows = {
            name: _judge(similarity, same, train, cost)
            for name, similarity in {"MiniLM": dense, **peers}.items()
        }
        yield from _judged_figures(cost, rows)
    for threshold in (0.8, 0.9, 0.95):
        yield share(
            f"paraphrases: wrong among hits at cosine {threshold}", ~same, dense >= threshold
        )


@dataclass(frozen=True)
class _Judged:
    threshold: float
    hit: NDArray[np.bool_]
    same: NDArray[np.bool_]
    cost: float

    @property
    def worth(self) -> float:
        """Return right hits minus the cost of wrong ones, per pair."""
        return float(np.mean(self.hit * np.where(self.same, 1.0, -self.cost)))


def _judge(
    similarity: NDArray[np.float64], same: NDArray[np.bool_], train: NDArray[np.bool_], cost: float
) -> _Judged:
    threshold = choose_threshold(similarity[train], same[train], wrong_cost=cost)
    return _Judged(threshold, similarity[~train] >= threshold, same[~train], cost)


def _judged_figures(cost: float, rows: dict[str, _Judged]) -> Iterator[Figure]:
    mine = rows["MiniLM"]
    others = {name: row for name, row in rows.items() if name != "MiniLM"}
    label = f"paraphrases, a wrong hit costs {cost:g}"
    yield Figure(f"{label}: threshold chosen on the other half", mine.threshold)
    yield share(
        f"{label}: wrong among hits", ~mine.same, mine.hit,
        peers={n: float(np.mean(~r.same[r.hit])) for n, r in others.items() if r.hit.any()},
    )  # fmt: skip
    yield share(
        f"{label}: found among pairs that mean the same", mine.hit, mine.same,
        peers={n: float(np.mean(r.hit[r.same])) for n, r in others.items()},
    )  # fmt: skip
    yield Figure(
        f"{label}: worth per pair, in right hits", mine.worth,
        peers={n: r.worth for n, r in others.items()},
    )  # fmt: skip


def _pairs(options: Options) -> tuple[list[str], list[str], NDArray[np.bool_]]:
    folder = options.folder("cache", PARAPHRASES)
    name = "gptcache_similiar_qqp_full.parquet"
    rows = read_columns(folder, name, ["text_a", "text_b", "label"])
    n = 400 if options.quick else 4000
    chosen = np.random.default_rng(0).choice(len(rows["label"]), n, replace=False)
    return (
        [rows["text_a"][i] for i in chosen],
        [rows["text_b"][i] for i in chosen],
        np.array([rows["label"][i] == 1 for i in chosen]),
    )


def _tfidf_cosines(one: Sequence[str], other: Sequence[str]) -> NDArray[np.float64]:
    counts = hashed_counts([*one, *other], 2**16)
    present = np.bincount(counts.indices, minlength=counts.shape[1])
    rows = (counts * (1.0 + np.log((counts.shape[0] + 1.0) / (present + 1.0)))).tocsr()
    norms = np.maximum(np.sqrt(rows.power(2).sum(axis=1)), 1e-12)
    rows = sparse.diags_array(1.0 / norms) @ rows
    dots = rows[: len(one)].multiply(rows[len(one) :]).sum(axis=1)
    return np.asarray(dots, dtype=np.float64)


def _jaccard(one: str, other: str) -> float:
    a, b = set(words(one)), set(words(other))
    return len(a & b) / len(a | b) if a | b else 1.0


def _area(similarity: NDArray[np.float64], same: NDArray[np.bool_]) -> float:
    ranks = rankdata(similarity)
    n = int(same.sum())
    return float((ranks[same].sum() - n * (n + 1) / 2) / (n * (len(same) - n)))


# A stream of tool calls --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Replay:
    """Result of every lookup at each arrival; one row per arrival."""

    request: NDArray[np.int64]
    first: NDArray[np.bool_]
    exact: NDArray[np.bool_]
    exact_right: NDArray[np.bool_]
    cosine: NDArray[np.float64]
    right: NDArray[np.bool_]
    same_numbers: NDArray[np.bool_]
    negative: NDArray[np.float64]
    cheap_fails: NDArray[np.bool_]


def _stream_figures(options: Options) -> Iterator[Figure]:
    """Yield hits and wrong hits on seeded streams of the assistant's requests."""
    world = World.load()
    streams = 2 if options.quick else 10
    parts = [_replay(world, np.random.default_rng(seed)) for seed in range(streams)]
    columns = {f: np.concatenate([getattr(p, f) for p in parts]) for f in _Replay.__annotations__}
    all_ = _Replay(**columns)
    by = all_.request
    yield share("stream: arrivals that repeat an earlier request", ~all_.first, clusters=by)
    yield share("stream, l1: hits", all_.exact, clusters=by)
    yield share("stream, l1: wrong among hits", ~all_.exact_right, all_.exact, clusters=by)
    for threshold in THRESHOLDS:
        hit = all_.cosine >= threshold
        yield share(f"stream, l2 at {threshold}: hits", hit, clusters=by)
        yield share(f"stream, l2 at {threshold}: wrong among hits", ~all_.right, hit, clusters=by)
        yield share(
            f"stream, l2 at {threshold}: wrong among hits of requests new to the stream",
            ~all_.right, hit & all_.first, clusters=by,
        )  # fmt: skip
    for same, label in ((True, "the same"), (False, "other")):
        hit = (all_.cosine >= 0.8) & all_.first & (all_.same_numbers == same)
        yield share(
            f"stream, l2 at 0.8: wrong among hits of new requests with {label} numbers",
            ~all_.right, hit, clusters=by,
        )  # fmt: skip
    yield from _chosen_threshold_figures(all_)
    for threshold in (0.9, 0.97, 1.0):
        hit = all_.negative >= threshold
        yield share(f"stream, l3 at {threshold}: hits", hit, clusters=by)
        yield share(
            f"stream, l3 at {threshold}: wrong among hits", ~all_.cheap_fails, hit, clusters=by,
            peers={"escalating everything": float(np.mean(~all_.cheap_fails))},
        )  # fmt: skip


def _chosen_threshold_figures(all_: _Replay) -> Iterator[Figure]:
    """Yield figures of l2's threshold, chosen on half of the requests, measured on the others."""
    train = np.random.default_rng(2).permutation(all_.request.max() + 1)[all_.request] % 2 == 0
    for cost in WRONG_COSTS:
        chosen = _judge(all_.cosine, all_.right, train, cost)
        label = f"stream, l2, a wrong hit costs {cost:g}"
        by = all_.request[~train]
        yield Figure(f"{label}: threshold chosen on half of the requests", chosen.threshold)
        yield share(f"{label}: hits on the other half", chosen.hit, clusters=by)
        yield share(f"{label}: wrong among them", ~chosen.same, chosen.hit, clusters=by)


def _replay(world: World, rng: np.random.Generator) -> _Replay:
    requests = world.catalogue.requests
    stream = arrivals(len(world), expected_arrivals(len(world)), rng)
    times = arrival_times(len(stream), rng)
    now = [0.0]
    # Thresholds near zero: every nearest entry counts, and thresholds are applied afterwards.
    # This is valid because the content of the tiers does not depend on hits.
    tiers = CacheTiers(lambda: now[0], dim=384, threshold=1e-9, negative_threshold=1e-9)
    seen: set[int] = set()
    rows = []
    for index, at in zip(stream.tolist(), times.tolist(), strict=True):
        now[0] = at
        request, vector = requests[index], world.embedding(index)
        cheap_ok = world.tool_right(index, world.bm25_best(index))
        l1, l2, l3 = (tiers.look_up(k, request.text, vector) for k in ("l1", "l2", "l3"))
        right = [found.right(request.answer, cheap_ok=cheap_ok) is True for found in (l1, l2)]
        rows.append(
            (index, index not in seen, l1.hit, right[0], l2.similarity, right[1],
             tiers.features(request.text)["same_numbers"] == 1.0, l3.similarity, not cheap_ok)
        )  # fmt: skip
        seen.add(index)
        tiers.update(request.text, vector, answer=request.answer, cheap_ok=cheap_ok)
    return _Replay(*(np.array(column) for column in zip(*rows, strict=True)))


# Costs -----------------------------------------------------------------------------


def _cost_figures(options: Options) -> Iterator[Figure]:
    """Yield the median time of each call on full tiers of 1,024 entries, without embeddings."""
    world = World.load()
    tiers = CacheTiers(time.monotonic, dim=384)
    n = 200 if options.quick else 1000
    asked = [(world.catalogue.requests[i].text, world.embedding(i)) for i in range(1311)]
    for text, vector in asked:
        tiers.update(text, vector, answer=text, cheap_ok=False)
    calls: dict[str, Callable[[str, NDArray[np.float32]], object]] = {
        "features()": lambda text, _: tiers.features(text),
        "look_up of l1": lambda text, _: tiers.look_up("l1", text),
        "look_up of l2, a new text": lambda text, v: tiers.look_up("l2", "new " + text, v),
        "update()": lambda text, v: tiers.update(text, v, answer=text, cheap_ok=False),
    }
    for name, call in calls.items():
        taken = []
        for text, vector in asked[:n]:
            start = time.perf_counter()
            call(text, vector)
            taken.append(time.perf_counter() - start)
        low, middle, high = np.quantile(taken, [0.05, 0.5, 0.95]) * 1e6
        yield Figure(f"cost of {name}, 1,024 entries", middle, low, high, unit="µs (5–95 %)")


if __name__ == "__main__":
    command("cache", run, doc=__doc__)
