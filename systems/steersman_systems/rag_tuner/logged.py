"""World for tuning on a log: some configurations, each on some of the questions.

Logged evaluations are replayed; others are rejected, never predicted. So tuning on a log chooses
among its configurations, and reports their share of the space.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.recorded import Recorded, open_npz, restored, write_npz
from steersman_systems.rag_tuner.reward import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Places = NDArray[np.intp]

_KIND = "log"
_COLUMNS = ("latency_ms", "cost", "failed", "violations", "unstable")


@dataclass(frozen=True)
class EvaluationLog:
    """Logged evaluations, each of one question under one configuration.

    Args:
        collection: Name of the collection.
        queries: (n,) ids of the questions.
        categories: (n,) category of each question; "" for none.
        splits: (n,) split of each question; "" for none.
        groups: (n,) conversation of each question; "" for none, () without conversations.
        configurations: Evaluated configurations, in canonical form.
        cells: (evaluations, 2) indexes of configuration and question, ascending and unique.
        quality: (evaluations, 2) in [0, 1], NaN where not defined.
        latency_ms: (evaluations,) ≥ 0.
        cost: (evaluations,) ≥ 0, in units of the reference cost of one query.
        failed: (evaluations,) whether the answer is missing.
        violations: (evaluations,) whether the answer has forbidden content.
        unstable: (evaluations,) whether repeated answers differ.
        measures: Names of the two measures.
        about: Provenance.

    Raises:
        InputError: Shapes do not match, or no evaluation.
    """

    collection: str
    queries: tuple[str, ...]
    categories: tuple[str, ...]
    splits: tuple[str, ...]
    groups: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    cells: NDArray[np.intp]
    quality: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    cost: NDArray[np.float64]
    failed: NDArray[np.bool_]
    violations: NDArray[np.bool_]
    unstable: NDArray[np.bool_]
    measures: tuple[str, str]
    about: Mapping[str, Any]
    _bounds: dict[Configuration, slice] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        count = len(self.cells)
        shapes = [self.quality.shape[0], *(len(getattr(self, name)) for name in _COLUMNS)]
        named = {len(self.categories), len(self.splits), len(self.groups or self.queries)}
        if not count or set(shapes) != {count} or named != {len(self.queries)}:
            message = f"{count} evaluations of {len(self.queries)} questions, columns of {shapes} "
            raise InputError(f"{message}and {sorted(named)}; expected equal numbers, ≥ 1")
        ends = np.searchsorted(self.cells[:, 0], np.arange(len(self.configurations) + 1))
        bounds = {
            one: slice(int(ends[place]), int(ends[place + 1]))
            for place, one in enumerate(self.configurations)
        }
        object.__setattr__(self, "_bounds", bounds)

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def sha256(self) -> str:
        """Hash of the evaluations; a run continues only on equal ones."""
        parts = [one.parts() for one in self.configurations]
        named = [self.queries, self.categories, self.splits, self.groups, parts, self.measures]
        found = hashlib.sha256(json.dumps(named).encode())
        for array in (self.cells, self.quality, *(getattr(self, name) for name in _COLUMNS)):
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def seen(self, configuration: Configuration, queries: Places) -> Places:
        """Return the questions on which a configuration was evaluated."""
        return np.intersect1d(self._of(configuration), queries, assume_unique=True)

    def holds(self, configuration: Configuration) -> bool:
        """Return whether a configuration was evaluated."""
        return configuration.canonical() in self._bounds

    def talks(self, queries: Places) -> list[str]:
        """Return the conversations of some questions; "" for none."""
        return [self.groups[place] if self.groups else "" for place in queries]

    def evaluate(self, configuration: Configuration, queries: Places) -> Batch:
        """Return the results of a configuration on some questions.

        Args:
            queries: (m,) question indexes, m ≥ 1.

        Raises:
            InputError: The configuration was not evaluated on one of them.
        """
        one = configuration.canonical()
        known = self._of(one)
        rows = np.searchsorted(known, queries)
        fits = rows < len(known)
        fits[fits] = known[rows[fits]] == np.asarray(queries)[fits]
        if not fits.all() or not len(rows):
            raise InputError(
                f"the log of {self.collection} has {one} on {int(fits.sum())} of these "
                f"{len(rows)} questions; use the questions of `seen`"
            )
        rows += self._bounds[one].start
        return Batch(
            configuration=one,
            queries=np.asarray(queries),
            **{name: getattr(self, name)[rows] for name in ("quality", *_COLUMNS)},
            measures=self.measures,
        )

    def save(self, file: Path) -> None:
        """Write the file atomically."""
        head = {
            "kind": _KIND,
            "collection": self.collection,
            "queries": self.queries,
            "categories": self.categories,
            "splits": self.splits,
            "groups": self.groups,
            "configurations": [one.parts() for one in self.configurations],
            "measures": self.measures,
            "about": dict(self.about),
        }
        names = ("cells", "quality", *_COLUMNS)
        write_npz(file, head, {name: getattr(self, name) for name in names})

    def _of(self, configuration: Configuration) -> Places:
        bounds = self._bounds.get(configuration.canonical(), slice(0, 0))
        return np.asarray(self.cells[bounds, 1], np.intp)


World: TypeAlias = Recorded | EvaluationLog
"""Source of evaluations for tuning: a recording of all, or a log of some."""


def load_world(file: Path) -> World:
    """Return the recording or log in a file.

    Raises:
        DataError: The file is missing, damaged, too large, or of another version.
    """
    with open_npz(file) as (head, arrays):
        if head.get("kind") != _KIND:
            return restored(head, arrays)
        first, second = head["measures"]
        return EvaluationLog(
            collection=head["collection"],
            queries=tuple(head["queries"]),
            categories=tuple(head["categories"]),
            splits=tuple(head["splits"]),
            groups=tuple(head["groups"]),
            configurations=tuple(Configuration.of(parts) for parts in head["configurations"]),
            cells=arrays["cells"].astype(np.intp),
            quality=arrays["quality"].astype(np.float64),
            **{name: arrays[name] for name in _COLUMNS},
            measures=(first, second),
            about=head["about"],
        )
