"""Recorded evaluations: every configuration on every query, for replay and tests of tuners.

The passages of a configuration are the first k of a ranking that does not depend on k, so a few
dozen rankings hold thousands of configurations. Quality comes from relevance judgements: the two
measures are recall@k and nDCG@min(k, 10).
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.reward import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration

MEASURES = ("recall", "ndcg")
COST_K = 16
"""Number of passages that cost one unit: the cost of a prompt grows with its length."""
_NDCG_K = 10
_SMALLER = 6
_FORMAT = 1
_MAX_BYTES = 2_000_000_000
Key = tuple[str, bool, float, bool]


@dataclass(frozen=True)
class Recorded:
    """Exhaustive evaluations of one collection.

    Args:
        collection: Name of the collection.
        queries: (n,) query ids.
        categories: (n,) category of each query; "" for none.
        splits: (n,) split of each query; "" for none.
        keys: Rankings: variant, rerank, fusion weight, expansion.
        gains: (rankings, n, depth) float32, the judged gain at each rank; 0 for unjudged or
            missing passages.
        ideal: (n, 10) float32, the highest gains of each query, descending, then 0.
        relevant: (n,) number of passages with a gain, ≥ 1.
        latency_ms: (rankings, n) float32, latency of each ranking.
        about: Provenance: versions, embedder, hash of the collection, machine.
        groups: (n,) conversation of each query; "" for none, () without conversations.
        times: (n,) last change of each query, in ISO 8601; "" if unknown, () if all are unknown.

    Raises:
        InputError: Shapes do not match, or no query.
    """

    collection: str
    queries: tuple[str, ...]
    categories: tuple[str, ...]
    splits: tuple[str, ...]
    keys: tuple[Key, ...]
    gains: NDArray[np.float32]
    ideal: NDArray[np.float32]
    relevant: NDArray[np.intp]
    latency_ms: NDArray[np.float32]
    about: Mapping[str, Any]
    groups: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    _recall: NDArray[np.float32] = field(init=False, repr=False)
    _ndcg: NDArray[np.float32] = field(init=False, repr=False)
    _place: dict[Key, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        count, kinds = len(self.queries), len(self.keys)
        for name in ("groups", "times"):
            if not any(getattr(self, name)):
                object.__setattr__(self, name, ())
        columns = (self.categories, self.splits, self.relevant, self.ideal)
        known = (self.groups or self.queries, self.times or self.queries)
        lengths = set(map(len, (*columns, *known)))
        if not count or lengths != {count}:
            raise InputError(
                f"{count} queries, and columns of {sorted(lengths)}; expected equal numbers, ≥ 1"
            )
        if self.gains.shape[:2] != (kinds, count) or self.latency_ms.shape != (kinds, count):
            raise InputError(f"gains {self.gains.shape}, latency {self.latency_ms.shape}; "
                             f"expected ({kinds}, {count}, depth), ({kinds}, {count})")  # fmt: skip
        if (self.relevant < 1).any():
            raise InputError("a query has no relevant passage, so it cannot be scored; remove it")
        found = (self.gains > 0).cumsum(axis=2)
        recall = found / self.relevant[None, :, None]
        discount = 1.0 / np.log2(np.arange(2, max(self.depth, _NDCG_K) + 2))
        gained = (self.gains * discount[: self.depth]).cumsum(axis=2)[:, :, :_NDCG_K]
        best = (self.ideal * discount[:_NDCG_K]).cumsum(axis=1)[:, : gained.shape[2]]
        object.__setattr__(self, "_recall", recall.astype(np.float32))
        object.__setattr__(self, "_ndcg", (gained / best[None]).astype(np.float32))
        object.__setattr__(self, "_place", {key: place for place, key in enumerate(self.keys)})

    @property
    def sha256(self) -> str:
        """Hash of the evaluations; a run continues only on equal ones."""
        # Splits depend on categories, so other categories change the held-out queries.
        named = [self.queries, self.categories, self.splits, self.keys]
        named += [one for one in (self.groups, self.times) if one]
        found = hashlib.sha256(json.dumps(named).encode())
        for array in (self.gains, self.ideal, self.relevant, self.latency_ms):
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    @property
    def depth(self) -> int:
        """The greatest k."""
        return int(self.gains.shape[2])

    def __len__(self) -> int:
        return len(self.queries)

    def evaluate(self, configuration: Configuration, queries: NDArray[np.intp]) -> Batch:
        """Return the results of a configuration on some queries.

        Args:
            queries: (m,) query indexes, m ≥ 1.

        Returns:
                Quality by judgements, measured latency, and cost k/16.

        Raises:
            InputError: The configuration was not recorded.
        """
        ranking, k = self._row(configuration), configuration.k
        found = self._recall[ranking, queries, k - 1]
        ranked = self._ndcg[ranking, queries, min(k, _NDCG_K) - 1]
        quality = np.stack([found, ranked], axis=1)
        none = np.zeros(len(queries), bool)
        return Batch(
            configuration=configuration,
            queries=np.asarray(queries),
            quality=quality.astype(np.float64),
            latency_ms=self.latency_ms[ranking, queries].astype(np.float64),
            cost=np.full(len(queries), k / COST_K),
            failed=none,
            violations=none,
            measures=MEASURES,
        )

    def smaller(self, batch: Batch) -> list[Batch]:
        """Return the results of the same queries with fewer passages, from the same ranking.

        Returns:
            Batches for up to seven smaller k, ascending, log-spaced from 1.
        """
        k = batch.configuration.k
        ks = np.unique(np.geomspace(1, k, _SMALLER + 2).round().astype(int))
        return [
            self.evaluate(replace(batch.configuration, k=int(fewer)), batch.queries)
            for fewer in ks[ks < k]
        ]

    def seen(self, configuration: Configuration, queries: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the queries on which a configuration was evaluated: all of them.

        Raises:
            InputError: The configuration was not recorded.
        """
        self.check(configuration)
        return queries

    def holds(self, configuration: Configuration) -> bool:
        """Return whether a configuration was recorded."""
        return key_of(configuration) in self._place and configuration.k <= self.depth

    def talks(self, queries: NDArray[np.intp]) -> list[str]:
        """Return the conversations of some queries; "" for none."""
        return [self.groups[place] if self.groups else "" for place in queries]

    def check(self, configuration: Configuration) -> None:
        """Refuse a configuration that was not recorded.

        Raises:
            InputError: The configuration was not recorded; the message says what to do.
        """
        if not self.holds(configuration):
            message = f"{configuration} was not recorded for {self.collection}; "
            message += f"{len(self.keys)} rankings up to k = {self.depth} were: record it again "
            message += "with `steersman tune record` and a policy that allows it, or name another"
            raise InputError(message)

    def _row(self, configuration: Configuration) -> int:
        self.check(configuration)
        return self._place[key_of(configuration)]

    def save(self, file: Path) -> None:
        """Write the file atomically."""
        head = {
            "collection": self.collection,
            "queries": self.queries,
            "categories": self.categories,
            "splits": self.splits,
            "groups": self.groups,
            "times": self.times,
            "keys": self.keys,
            "about": dict(self.about),
        }
        names = ("gains", "ideal", "relevant", "latency_ms")
        write_npz(file, head, {name: getattr(self, name) for name in names})


def key_of(configuration: Configuration) -> Key:
    """Return the ranking of a configuration.

    >>> from steersman_systems.rag_tuner.configuration import Configuration
    >>> key_of(Configuration("bm25", fusion_weight=0.9))
    ('bm25', False, 0.5, False)
    """
    one = configuration.canonical()
    return one.variant, one.rerank, one.fusion_weight, one.expansion


def load_recorded(file: Path) -> Recorded:
    """Load a recording.

    Raises:
        DataError: The file is missing, damaged, too large, or of another version.
    """
    with open_npz(file) as (head, arrays):
        return restored(head, arrays)


def write_npz(file: Path, head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write evaluations atomically."""
    text = np.frombuffer(json.dumps({"format": _FORMAT, **head}).encode(), np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part.npz")
    np.savez_compressed(part, allow_pickle=False, head=text, **arrays)
    part.replace(file)


@contextmanager
def open_npz(file: Path) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """Open a file of `write_npz`; damage raises DataError, also during reading.

    Raises:
        DataError: The file is missing, damaged, too large, or of another version.
    """
    try:
        with zipfile.ZipFile(file) as inside:
            size = sum(one.file_size for one in inside.infolist())
        if size > _MAX_BYTES:
            raise DataError(f"{file}: {size:,} bytes unpacked; allowed: up to {_MAX_BYTES:,}")
        with np.load(file, allow_pickle=False) as arrays:
            head = json.loads(arrays["head"].tobytes())
            if head["format"] != _FORMAT:
                raise DataError(f"{file}: format {head['format']!r}, expected {_FORMAT}; record it "
                                "again with `steersman tune record`")  # fmt: skip
            yield head, arrays
    except (OSError, ValueError, KeyError, TypeError, zlib.error, zipfile.BadZipFile) as error:
        message = (
            f"{file}: no recorded evaluations: {error}; create them with `steersman tune record`"
        )
        raise DataError(message) from None


def restored(head: Mapping[str, Any], arrays: Mapping[str, Any]) -> Recorded:
    """Return the recording in an open file.

    Raises:
        KeyError: An array is missing; `open_npz` reports it.
        InputError: Shapes do not match.
    """
    return Recorded(
        collection=head["collection"],
        queries=tuple(head["queries"]),
        categories=tuple(head["categories"]),
        splits=tuple(head["splits"]),
        keys=tuple((key[0], bool(key[1]), float(key[2]), bool(key[3])) for key in head["keys"]),
        gains=arrays["gains"].astype(np.float32),
        ideal=arrays["ideal"],
        relevant=arrays["relevant"].astype(np.intp),
        latency_ms=arrays["latency_ms"],
        about=head["about"],
        groups=tuple(head.get("groups", ())),
        times=tuple(head.get("times", ())),
    )


def graded(
    rankings: Sequence[Sequence[str]], gains: Mapping[str, float], depth: int
) -> NDArray[np.float32]:
    """Return the judged gain at every rank of some rankings of one query.

    Args:
        depth: Number of ranks, ≥ 1.

    Returns:
            (rankings, depth) float32; 0 for missing or unjudged passages.

    >>> graded([["a", "b"]], {"b": 2.0}, 3).tolist()
    [[0.0, 2.0, 0.0]]
    """
    found = np.zeros((len(rankings), depth), np.float32)
    for row, ranked in enumerate(rankings):
        for place, one in enumerate(ranked[:depth]):
            found[row, place] = gains.get(one, 0.0)
    return found
