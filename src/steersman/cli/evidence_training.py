"""What `steersman evidence train` and `select` do: a selector is made, kept, and asked."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.cli.evidence_running import opened_embedder, progress_bar
from steersman.errors import DataError, InputError
from steersman.policies.tree_scorer import TreeScorer
from steersman.registry import pack_state, unpack_state
from steersman.systems.leadr import Collection, Environment, Limits, Question, sets
from steersman.systems.leadr.baselines import TopK
from steersman.systems.leadr.contenders import Cloned
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
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(pack_state(selector.scorer.state()))
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error}; name another file") from error
    return {"selector": str(out), "set": name, "questions": len(prepared.questions),
            "without_gold": prepared.skipped, "query_form": prepared.form}  # fmt: skip


def selected(
    *, question: str, data: Path, name: str, selector: Path | None, picks: int, may_stop: bool,
    words_alone: bool, home: Path | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Pick passages for a question.

    Args:
        question: that stands alone.
        data: directory of the sets.
        name: of the set whose passages are searched.
        selector: file of `trained`; None for the best by rank.
        picks: passages at most.
        may_stop: whether the selector may stop before.
        words_alone: no vectors.
        home: of the caches.

    Raises:
        DataError: the set is absent, or the file is no selector.
        InputError: the question is blank.
    """
    limits = Limits(picks=picks, expanding="always", may_stop=may_stop)
    environment = Environment(limits)
    chosen: Any = TopK("fused", environment)
    if selector is not None:
        chosen = ScoredSelector("clone", _scorer(selector), environment)
    with ExitStack() as stack:
        embedder = opened_embedder(stack, home, words_alone=words_alone)
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


def _scorer(file: Path) -> TreeScorer:
    try:
        return TreeScorer.from_state(unpack_state(file.read_bytes()))
    except OSError as error:
        message = f"{file} cannot be read: {error}; write it with `steersman evidence train`"
        raise DataError(message) from error
