"""Accuracy of the intent classifier on clinc150, with peers, and on the assistant's tool families.

``--sets``: ``clinc150`` (reads --data; rivals need the extra ``bench``), ``catalogue`` (uses only
files that the package ships or fetches), or the ``NAME`` of a ``NAME.parquet`` in the folder
``intents`` of --data, with the columns split, text and intent. Default: the first two. The splits
train and test are required; val, oos_val and oos_test (out of scope) add figures.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from benchmarks.arrival_laws import read_columns
from benchmarks.report import Figure, command
from benchmarks.shares import share
from steersman.errors import DataError
from steersman_systems.assistant.intents import IntentClassifier, tool_families
from steersman_systems.assistant.lexical import hashed_counts
from steersman_systems.assistant.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.report import Options

CLINC150 = "github.com/clinc/oos-eval, data/data_full.json"
POWERS = (2.0, 4.0, 6.0, 8.0, 12.0)
FAMILIES = (20, 40, 80)
BATCH = 50


def run(options: Options) -> Iterator[Figure]:
    """Measure the chosen sets."""
    chosen = options.sets or ("clinc150", "catalogue")
    unknown = [name for name in chosen if name not in {"clinc150", "catalogue"}]
    unknown = [name for name in unknown if not _file(name, options.data).is_file()]
    if unknown:
        where = f", and NAME.parquet in {options.data / 'intents'}" if options.data else ""
        message = f"unknown set {', '.join(unknown)}; known are clinc150, catalogue{where}"
        raise DataError(message)
    for name in chosen:
        yield from _catalogue_figures(options) if name == "catalogue" else _figures(name, options)


# Labelled utterances -----------------------------------------------------------------------------


def _figures(name: str, options: Options) -> Iterator[Figure]:
    """Yield in-scope accuracy and detection of out-of-scope questions."""
    texts, labels = _splits(name, options)
    model = IntentClassifier.fit(texts["train"], labels["train"].tolist())
    answers = {split: _predict(model, texts[split]) for split in texts if split != "train"}
    right = answers["test"][0] == labels["test"]
    intents = len(np.unique(labels["train"]))
    yield share(
        f"{name}: accuracy on {len(right)} in-scope utterances, {intents} intents", right,
        peers=_rivals(texts["train"], labels["train"], texts["test"], labels["test"]),
    )  # fmt: skip
    if "val" in texts:
        yield from _power_figures(name, texts, labels)
    if "oos_test" in texts:
        yield from _scope_figures(name, answers, right)
    one = texts["test"][:200]
    start = time.perf_counter()
    for text in one:
        model.predict(text)
    taken = (time.perf_counter() - start) / len(one)
    about = f"{name}: time of one prediction, {len(texts['train']):,} examples"
    yield Figure(about, taken * 1e3, unit="ms")


def _file(name: str, data: Path | None) -> Path:
    return (data or Path()) / "intents" / f"{name}.parquet"


def _splits(
    name: str, options: Options
) -> tuple[dict[str, list[str]], dict[str, NDArray[np.str_]]]:
    folder = options.folder("intents", CLINC150)
    file = "clinc150_full.parquet" if name == "clinc150" else f"{name}.parquet"
    rows = read_columns(folder, file, ["split", "text", "intent"])
    if not all(isinstance(one, str) for column in rows.values() for one in column):
        raise DataError(f"{folder / file} holds something else than texts in split, text or intent")
    keep = 3 if options.quick else 1
    chosen = range(0, len(rows["text"]), keep)
    splits = dict.fromkeys(rows["split"][i] for i in chosen)
    members = {split: [i for i in chosen if rows["split"][i] == split] for split in splits}
    texts = {split: [rows["text"][i] for i in rows_] for split, rows_ in members.items()}
    labels = {s: np.array([rows["intent"][i] for i in rows_]) for s, rows_ in members.items()}
    if not {"train", "test"} <= texts.keys() or len(set(labels["train"].tolist())) < 2:
        there = ", ".join(texts) or "none"
        message = f"{folder / file} has the splits {there}; train and test must be there"
        raise DataError(f"{message}, and two intents or more in train")
    return texts, labels


def _predict(
    model: IntentClassifier, texts: Sequence[str]
) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    batches = [model.predict_many(texts[k : k + BATCH]) for k in range(0, len(texts), BATCH)]
    intents = np.array([intent for batch, _ in batches for intent in batch])
    return intents, np.concatenate([confidence for _, confidence in batches])


def _power_figures(
    name: str, texts: dict[str, list[str]], labels: dict[str, NDArray[np.str_]]
) -> Iterator[Figure]:
    """Yield figures of the power, chosen on the validation split."""
    accuracy = {}
    for power in POWERS:
        model = IntentClassifier.fit(texts["train"], labels["train"].tolist(), power=power)
        accuracy[power] = float(np.mean(_predict(model, texts["val"])[0] == labels["val"]))
    aimed = name == "clinc150"  # the split that chose the power
    yield Figure(
        f"{name}: accuracy on the validation split at the shipped power 6", accuracy[6.0],
        goal="no other power is better by .005" if aimed else None,
        holds=max(accuracy.values()) < accuracy[6.0] + 0.005 if aimed else None,
        peers={f"power {power:g}": value for power, value in accuracy.items() if power != 6.0},
    )  # fmt: skip


def _scope_figures(
    name: str,
    answers: dict[str, tuple[NDArray[np.str_], NDArray[np.float64]]],
    right: NDArray[np.bool_],
) -> Iterator[Figure]:
    """Yield out-of-scope figures; the confidence threshold is chosen on the validation splits."""
    within, outside = answers["test"][1], answers["oos_test"][1]
    ranks = rankdata(np.concatenate([within, outside]))[: len(within)]
    n, m = len(within), len(outside)
    yield Figure(
        f"{name}: area under ROC of the confidence, in scope against {m} out of scope",
        float((ranks.sum() - n * (n + 1) / 2) / (n * m)),
    )
    if not {"val", "oos_val"} <= answers.keys():
        return
    known, unknown = answers["val"][1], answers["oos_val"][1]
    levels = np.unique(np.concatenate([known, unknown]))
    balance = [np.mean(known >= t) + np.mean(unknown < t) for t in levels]
    threshold = levels[int(np.argmax(balance))]
    yield Figure(f"{name}: confidence below which a request counts as out of scope", threshold)
    yield share(f"{name}: in-scope utterances kept and right", right & (within >= threshold))
    yield share(f"{name}: out-of-scope utterances told apart", outside < threshold)


def _rivals(
    train: Sequence[str],
    labels: NDArray[np.str_],
    test: Sequence[str],
    truth: NDArray[np.str_],
) -> dict[str, float]:
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415 - extra
    from sklearn.naive_bayes import MultinomialNB  # noqa: PLC0415
    from sklearn.neighbors import NearestCentroid  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.svm import LinearSVC  # noqa: PLC0415

    rivals = {
        "linear SVM on tf-idf": LinearSVC(random_state=0),
        "naive Bayes on tf-idf": MultinomialNB(alpha=0.1),
        "nearest centroid on tf-idf": NearestCentroid(),
    }
    shares = {}
    for name, rival in rivals.items():
        pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), rival)
        shares[name] = float(np.mean(pipeline.fit(train, labels).predict(test) == truth))
    shares["ridge on our hashed slots"] = float(np.mean(_ridge(train, labels, test) == truth))
    return shares


def _ridge(train: Sequence[str], labels: NDArray[np.str_], test: Sequence[str]) -> NDArray[np.str_]:
    """Return predictions of ridge regression on one-hot labels, same tf-idf slots, penalty 1."""
    counts, asked = (hashed_counts(texts, 4096) for texts in (train, test))
    present = np.bincount(counts.indices, minlength=4096)
    idf = 1.0 + np.log((len(train) + 1.0) / (present + 1.0))
    rows, queries = ((c * idf).tocsr() for c in (counts, asked))
    rows = rows / np.maximum(np.sqrt(rows.power(2).sum(axis=1)), 1e-12)[:, None]
    names, target = np.unique(labels, return_inverse=True)
    wanted = np.eye(len(names))[target] - 1.0 / len(names)
    gram = (rows.T @ rows).toarray() + np.eye(4096)
    weights = np.linalg.solve(gram, rows.T @ wanted)
    best: NDArray[np.str_] = names[np.argmax(queries @ weights, axis=1)]
    return best


# The assistant's catalogue -----------------------------------------------------------------------


def _catalogue_figures(options: Options) -> Iterator[Figure]:
    """Yield the share of requests that get the family of the right tool."""
    world = World.load()
    names = [tool.name for tool in world.catalogue.tools]
    texts = [tool.text for tool in world.catalogue.tools]
    asked = [request.text for request in world.catalogue.requests]
    needed = [request.tool for request in world.catalogue.requests]
    seeds = 2 if options.quick else 5
    for count in FAMILIES:
        hits, commonest, rival = [], [], []
        for seed in range(seeds):
            families = tool_families(names, texts, count, np.random.default_rng(seed))
            truth = np.array(families)[needed]
            model = IntentClassifier.fit(texts, families)
            hits.append(np.array(model.predict_many(asked)[0]) == truth)
            commonest.append(Counter(truth.tolist()).most_common(1)[0][1] / len(truth))
            rival.append(float(np.mean(_ridge(texts, np.array(families), asked) == truth)))
        yield share(
            f"catalogue: requests in the family of their tool, {count} families of {len(names)} "
            f"tools, {seeds} seeds",
            np.concatenate(hits), clusters=np.tile(np.arange(len(asked)), seeds),
            peers={"commonest family": float(np.mean(commonest)), "ridge": float(np.mean(rival))},
        )  # fmt: skip


if __name__ == "__main__":
    command("intents", run, doc=__doc__)
