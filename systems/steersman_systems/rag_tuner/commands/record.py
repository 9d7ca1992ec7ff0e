"""Recording of a collection, for `steersman tune record`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

from steersman.platform.wheel_files import state_directory
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.embedding_cache import CachedEmbedder
from steersman.retrieval.passage_links import link_titles
from steersman.retrieval.rerank import CosineReranker
from steersman.retrieval.searcher import Searcher
from steersman_systems.rag_tuner.hygiene import ready_to_split
from steersman_systems.rag_tuner.judged_collections import load_judged
from steersman_systems.rag_tuner.manifest import check, load_manifest
from steersman_systems.rag_tuner.recorder import check_space, record

if TYPE_CHECKING:
    from pathlib import Path

    from steersman_systems.rag_tuner.judged_collections import JudgedCollection
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.recorded import Recorded


def recorded_collection(
    folder: Path, tuned: PolicyConfig, home: Path | None, *, progress: bool
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
