"""Recording of a collection, for `steersman tune record`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

from steersman.retrieval import (
    CachedEmbedder,
    CosineReranker,
    MiniLM,
    Searcher,
    link_titles,
    load_judged,
    state_directory,
)
from steersman.systems.rag_tuner import check, load_manifest, record
from steersman.systems.rag_tuner.hygiene import ready_to_split
from steersman.systems.rag_tuner.recording import check_space

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.retrieval import JudgedCollection
    from steersman.systems.rag_tuner import Recorded, Tuned


def recorded_collection(
    folder: Path, tuned: Tuned, home: Path | None, *, progress: bool
) -> Recorded:
    """Evaluate every configuration on every question of a collection.

    Duplicate questions are recorded once, so that no later split has one on both sides. `folder`
    has a format of `load_judged`; a ``manifest.yaml`` in it is checked.

    Raises:
        DataError: the collection is unreadable or differs from its manifest, or the extra `rag` is
            missing.
        InputError: the space of configurations cannot be recorded.
    """
    check_space(tuned.space)  # check first: the embedding may take minutes
    asked, named = _asked(folder)
    collection, hygiene = ready_to_split(asked)
    with CachedEmbedder(MiniLM(home), state_directory(home) / "embeddings.sqlite") as embedder:
        searcher = Searcher(
            collection.passages,
            embedder=embedder,
            links=link_titles(collection.passages),
            rerankers={"cosine": CosineReranker(embedder)},
        )
        shown = progress and sys.stderr.isatty()
        with Progress(console=Console(stderr=True), disable=not shown) as bar:
            task = bar.add_task("evaluating", total=len(collection.questions))
            return record(
                searcher,
                collection,
                tuned.space,
                about={"embedder": embedder.name, **hygiene, **named},
                done=lambda count: bar.advance(task, count),
            )


def _asked(folder: Path) -> tuple[JudgedCollection, dict[str, str]]:
    """Return a collection, and the hash of its manifest, if it has one."""
    file = folder / "manifest.yaml"
    if not file.is_file():
        return load_judged(folder), {}
    manifest = load_manifest(file)
    return check(manifest, folder), {"manifest": manifest.sha256}
