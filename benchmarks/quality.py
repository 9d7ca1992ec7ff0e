"""Accuracy of answer proxies and detectors; groundedness with and without retrieval.

``--sets`` names the folder of ``--data`` for groundedness; default: hotpotqa. The other parts read
scifact, pii and pref_hh_webgpt. The proxies need the extra ``rag``, groundedness also ``local``.

``entailment_support`` is judged by the labels of SciFact: a cited abstract supports a claim,
contradicts it or has no evidence. Constants and threshold were chosen on training claims. Figures
are over all pairs of the held-out claims.

Personal data: counted on labelled sentences whose template number is odd. The store's scrubbers
were once adjusted on all templates, so their figures are optimistic. The detectors of national ids
were written without them.

Toxicity has no labels here. Its figure is how much more often it flags the answer that people
rejected as the more harmful of two.

Groundedness compares a small local model with and without retrieval, over the same evidence.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.report import Figure, command
from lab.entailment import Entailment
from lab.faithfulness_gain import grounding
from lab.support_scores import EntailmentSupport, sentences_of
from steersman.errors import DataError
from steersman.platform.wheel_files import state_directory
from steersman.providers.detectors.national_ids import PersonalData
from steersman.providers.detectors.toxicity import toxicity
from steersman.providers.small_models import local_model
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.embedding_cache import CachedEmbedder
from steersman.retrieval.results import SearchSettings
from steersman.retrieval.searcher import Searcher
from steersman_systems.rag_tuner.judged_collections import load_judged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.report import Options
    from steersman.providers.detectors.toxicity import Toxicity

    Floats = NDArray[np.float64]

AUC = 0.78
ASKED = 36
ANSWERED_FROM = "hotpotqa"
_KINDS = {
    "card": "CREDIT_CARD",
    "email": "EMAIL_ADDRESS",
    "iban": "IBAN_CODE",
    "ip": "IP_ADDRESS",
    "phone": "PHONE_NUMBER",
    "us_ssn": "US_SSN",
}
_LABELS = ("SUPPORT", "CONTRADICT", "none")


def run(options: Options) -> Iterator[Figure]:
    """Measure proxies, detectors and groundedness."""
    yield from _personal(options.folder("pii", "its publisher"))
    yield from _toxic(options.folder("pref_hh_webgpt", "its publisher"), toxicity())
    with CachedEmbedder(MiniLM(), state_directory() / "embeddings.sqlite") as embedder:
        entailment = Entailment()
        support = EntailmentSupport(entailment, embedder)
        folder = options.folder("scifact", "its publisher")
        yield from _agreement(folder, support, entailment, embedder, 5 if options.quick else None)
        yield from _grounded(options, support, embedder)


# -- proxies --------------------------------------------------------------------------------------


def _agreement(
    folder: Path,
    support: EntailmentSupport,
    entailment: Entailment,
    embedder: Any,
    each: int | None,
) -> Iterator[Figure]:
    pairs = _pairs(folder, "test", each)
    labels = np.array([label for label, _, _ in pairs])
    scores, against, close = (np.zeros(len(pairs)) for _ in range(3))
    for place, (_, claim, abstract) in enumerate(pairs):
        scores[place] = support.scores(claim, [abstract])[0]
        vectors = embedder.encode([claim, *sentences_of(abstract)])
        nearness = vectors[1:] @ vectors[0]
        close[place] = nearness.max()
        nearest = sentences_of(abstract)[int(nearness.argmax())]
        against[place] = entailment.contradiction([claim], [nearest])[0]
        if place % 20 == 0:
            print(f"scifact: {place} of {len(pairs)} pairs", file=sys.stderr)
    many = ", ".join(f"{sum(pair[0] == label for pair in pairs)} {label}" for label in _LABELS)
    about = f"scifact test claims ({len(pairs)} pairs: {many})"
    borne = labels == "SUPPORT"
    value, low, high = auc(scores[borne], scores[~borne])
    yield Figure(
        f"{about}: entailment_support, AUC of SUPPORT over the rest", value, low, high,
        goal=f">= {AUC:g}", holds=value >= AUC,
        peers={"cosine of the closest sentence": auc(close[borne], close[~borne])[0],
               "1 - contradiction": auc(-against[borne], -against[~borne])[0]},
    )  # fmt: skip
    for other in _LABELS[1:]:
        told = auc(scores[borne], scores[labels == other])
        yield Figure(f"{about}: entailment_support, AUC of SUPPORT over {other}", *told)
    denied = labels == "CONTRADICT"
    told = auc(against[denied], against[~denied])
    yield Figure(f"{about}: contradiction alone, AUC of CONTRADICT over the rest", *told)
    chosen = scores > 0.5
    for name, rows in (("recall", borne), ("specificity", ~borne)):
        share = float((chosen[rows] == (name == "recall")).mean())
        yield Figure(f"{about}: entailment_support at its threshold, {name}", share)


def _pairs(folder: Path, split: str, each: int | None = None) -> list[tuple[str, str, str]]:
    """Return label, claim and abstract, with a maximum per label, drawn with seed 0."""
    claims = {row["id"]: row for row in _rows(folder / "queries.jsonl.gz")}
    texts = {row["id"]: row["text"] for row in _rows(folder / "corpus.jsonl.gz")}
    with (folder / "qrels.tsv").open(encoding="utf-8", newline="") as file:
        cited = [row[:2] for row in csv.reader(file, delimiter="\t") if row[0] in claims]
    found: dict[str, list[tuple[str, str, str]]] = {label: [] for label in _LABELS}
    for place in np.random.default_rng(0).permutation(len(cited)):
        claim, document = cited[place]
        if claims[claim]["split"] == split:
            label = (claims[claim]["labels"] or ["none"])[0]
            found[label].append((label, claims[claim]["text"], texts[document]))
    return [pair for label in _LABELS for pair in found[label][:each]]


def auc(high: Floats, low: Floats) -> tuple[float, float, float]:
    """Return the area under the ROC curve with its 95 % interval.

    Args:
        high: (m,) scores that should be higher.
        low: (n,) scores that should be lower.

    Returns:
        Value, lower and upper end; ties count half. The interval is that of DeLong.

    Source: DeLong, DeLong & Clarke-Pearson, Comparing the Areas under Two or More Correlated
    Receiver Operating Characteristic Curves (1988).

    >>> auc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))[0]
    0.875
    """
    above = (high[:, None] > low) + 0.5 * (high[:, None] == low)
    value = float(above.mean())
    variance = above.mean(1).var(ddof=1) / len(high) + above.mean(0).var(ddof=1) / len(low)
    half = 1.96 * float(np.sqrt(variance))
    return value, max(0.0, value - half), min(1.0, value + half)


# -- detectors ------------------------------------------------------------------------------------


def _personal(folder: Path) -> Iterator[Figure]:
    rows = json.loads((folder / "synth_dataset_v2.json").read_text(encoding="utf-8"))
    held = [row for row in rows if row["template_id"] % 2]
    detector = PersonalData()
    hit, wanted, right, said = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for row in held:
        flags = detector.detect(row["full_text"])
        for kind, entity in _KINDS.items():
            true = [one for one in row["spans"] if one["entity_type"] == entity]
            places = [(one["start_position"], one["end_position"]) for one in true]
            ours = [(one.start, one.end) for one in flags if one.kind == kind]
            wanted[kind] += len(places)
            said[kind] += len(ours)
            hit[kind] += sum(any(_meet(one, other) for other in ours) for one in places)
            right[kind] += sum(any(_meet(one, other) for other in places) for one in ours)
    for kind in _KINDS:
        about = f"pii, odd templates ({len(held)} sentences): {kind}"
        if wanted[kind]:
            yield Figure(f"{about}, recall of {wanted[kind]}", hit[kind] / wanted[kind])
        if said[kind]:
            yield Figure(f"{about}, precision of {said[kind]}", right[kind] / said[kind])


def _meet(one: Sequence[int], other: Sequence[int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _toxic(folder: Path, detector: Toxicity) -> Iterator[Figure]:
    """Yield the share of flagged answers among those that people rejected as more harmful."""
    rows = _rows(folder / "harmless-base-test.jsonl.gz")
    flagged = {
        side: np.array([bool(detector.detect(_last(row[side]))) for row in rows], float)
        for side in ("rejected", "chosen")
    }
    ahead = flagged["rejected"] - flagged["chosen"]
    half = 1.96 * float(ahead.std(ddof=1)) / len(ahead) ** 0.5
    mean = float(ahead.mean())
    yield Figure(
        f"toxicity, {len(rows)} pairs of answers: share flagged, rejected over chosen",
        mean,
        mean - half,
        mean + half,
        peers={name: float(found.mean()) for name, found in flagged.items()},
    )


def _last(dialogue: str) -> str:
    return dialogue.rpartition("Assistant:")[2].strip()


# -- groundedness ---------------------------------------------------------------------------------


def _grounded(options: Options, support: EntailmentSupport, embedder: Any) -> Iterator[Figure]:
    name = next(iter(options.sets), ANSWERED_FROM)
    every = load_judged(options.folder(name, "its publisher"), missing="unfindable")
    every = every.split(every.held_out)
    rng = np.random.default_rng(0)
    count = min(4 if options.quick else ASKED, len(every.questions))
    chosen = sorted(rng.choice(len(every.questions), count, replace=False))
    collection = replace(every, questions=tuple(every.questions[place] for place in chosen))
    searcher = Searcher(collection.passages, embedder=embedder)
    try:
        backend = local_model(context_tokens=2048)
    except DataError as missing:
        print(f"groundedness is not measured, no local model: {missing}", file=sys.stderr)
        return
    with backend:
        found = grounding(
            backend, searcher, collection, SearchSettings(k=2), support, max_tokens=32,
            timeout_s=300.0, done=lambda _: print("answered", file=sys.stderr),
        )  # fmt: skip
    print(found, file=sys.stderr)
    for label, answers in (("with retrieval (k=2)", found.given), ("without", found.alone)):
        known = [one.support for one in answers if one.support is not None]
        yield Figure(
            f"{name}, {found.pairs} questions, SmolLM2-135M {label}: {found.measure}",
            float(np.mean(known)),
        )
    yield Figure(
        f"{name}: {found.measure}, with retrieval over without", found.gain, found.low, found.high,
        goal="> 0", holds=found.low > 0,
    )  # fmt: skip


def _rows(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


if __name__ == "__main__":
    command("quality", run, doc=__doc__)
