"""What `steersman tune record` puts together: a collection, its engines, its recording."""

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
    """Return what every configuration gives on every question of a collection.

    A question that is asked twice is recorded once: however they are split later, none stands on
    both sides.

    Args:
        folder: In one of the formats of `load_judged`; what a ``manifest.yaml`` in it says must
            hold.
        tuned: What may be chosen.
        home: Directory of the caches.
        progress: Whether to show how far it is, at a terminal.

    Raises:
        DataError: The collection cannot be read, or is not what its manifest says, or the extra
            `rag` is missing.
        InputError: Such a space cannot be recorded.
    """
    check_space(tuned.space)  # before texts are embedded, which may take long
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
            task = bar.add_task("asking", total=len(collection.questions))
            return record(
                searcher,
                collection,
                tuned.space,
                about={"embedder": embedder.name, **hygiene, **named},
                done=lambda count: bar.advance(task, count),
            )


def _asked(folder: Path) -> tuple[JudgedCollection, dict[str, str]]:
    """Return a collection, and what its manifest names it by, where it has one."""
    file = folder / "manifest.yaml"
    if not file.is_file():
        return load_judged(folder), {}
    manifest = load_manifest(file)
    return check(manifest, folder), {"manifest": manifest.sha256}
