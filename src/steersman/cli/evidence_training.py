"""What `steersman evidence train` and `select` do: a selector is made, kept, and asked."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.cli.evidence_running import opened_embedder, progress_bar
from steersman.errors import DataError, InputError
from steersman.policies.tree_scorer import TreeScorer
from steersman.systems.leadr import Collection, Environment, Limits, Question, sets
from steersman.systems.leadr.baselines import TopK
from steersman.systems.leadr.contenders import Cloned
from steersman.systems.leadr.kept_selectors import MadeFor, kept, read_file
from steersman.systems.leadr.preparing import prepare
from steersman.systems.leadr.selectors import ScoredSelector

if TYPE_CHECKING:
    from pathlib import Path


def trained(
    *, quiet: bool, data: Path, name: str, out: Path, may_stop: bool, picks: int, form: str,
    words_alone: bool, home: Path | None, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Train a clone on a set and write it.

    Args:
        quiet: show no progress.
        data: directory of the sets.
        name: of the set.
        out: file to write.
        may_stop: whether it learns to stop.
        picks: passages at most.
        form: of the query.
        words_alone: no vectors.
        home: of the caches.
        seed: of the training.

    Raises:
        DataError: the set is absent, an extra is missing, or the file cannot be written.
    """
    limits = Limits(picks=picks, expanding="always", may_stop=may_stop)
    with ExitStack() as stack, progress_bar(quiet=quiet) as bar:
        embedder = opened_embedder(stack, home, words_alone=words_alone)
        task = bar.add_task(f"{name}: retrieving", total=None)
        prepared = prepare(
            name, data, embedder=embedder, form=form, done=lambda count: bar.advance(task, count)
        )
        selector = Cloned("clone", limits, seed=seed).fitted(prepared.pools)
    if not isinstance(selector, ScoredSelector) or not isinstance(selector.scorer, TreeScorer):
        raise InputError(f"{selector.name} is no clone of trees; nothing was written")
    made_for = MadeFor(
        embedder=embedder.name if embedder is not None else "", picks=limits.picks,
        tokens=limits.tokens, added=limits.added, may_stop=may_stop, form=prepared.form, set=name,
    )  # fmt: skip
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(kept(selector.scorer, made_for))
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error}; name another file") from error
    return {"selector": str(out), "set": name, "questions": len(prepared.questions),
            "without_gold": prepared.skipped, "query_form": prepared.form}  # fmt: skip


def selected(
    *, question: str, data: Path, name: str, selector: Path | None, picks: int | None,
    may_stop: bool | None, words_alone: bool, home: Path | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Pick passages for a question.

    The question stands alone, so every form of query is the question itself.

    Args:
        question: that stands alone.
        data: directory of the sets.
        name: of the set whose passages are searched.
        selector: file of `trained`; None for the best by rank.
        picks: passages at most; None: as many as it was trained for, or 5.
        may_stop: whether the selector may stop before; None: if it learned to.
        words_alone: no vectors.
        home: of the caches.

    Raises:
        DataError: the set is absent, or the file cannot be read.
        StateError: the file is no selector, or one for other features.
        InputError: the question is blank, or the selector was trained for something else.
    """
    chosen: Any = TopK("fused", Environment(Limits(picks=picks or 5, expanding="always")))
    made_for = None
    if selector is not None:
        scorer, made_for = read_file(selector)
        limits = made_for.limits(picks=picks, may_stop=may_stop)
        chosen = ScoredSelector("clone", scorer, Environment(limits))
    with ExitStack() as stack:
        embedder = opened_embedder(stack, home, words_alone=words_alone)
        if made_for is not None:
            made_for.check_embedder(embedder.name if embedder is not None else "")
        collection = Collection(sets.load(name, data).passages, embedder=embedder)
        pool = collection.pool(Question("asked", question))
        found = chosen.select(pool, rng=np.random.default_rng(0))
    rows = []
    why = [*found.why, *[{}] * len(found.picked)]
    for step, (one, reasons) in enumerate(zip(found.picked, why, strict=False), 1):
        candidate = collection.candidates[collection.place_of[one]]
        told = ", ".join(f"{name} {value:+.2f}" for name, value in reasons.items())
        text = " ".join(candidate.text.split())[:160]
        rows.append({"step": step, "id": one, "title": candidate.title, "why": told, "text": text})
    return rows
