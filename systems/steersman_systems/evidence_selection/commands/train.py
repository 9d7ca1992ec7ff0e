"""Training and use of a selector, for `steersman evidence train` and `select`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman_systems.evidence_selection.baselines import TopK
from steersman_systems.evidence_selection.case_studies import reasons_of_picks
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.commands.progress import progress_bar
from steersman_systems.evidence_selection.commands.run import opened_embedder
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.experts import GoldExpert, RankExpert
from steersman_systems.evidence_selection.kept_selectors import SelectorSetup, kept, read_file
from steersman_systems.evidence_selection.prepared_set import prepare
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.raft_training import from_feedback
from steersman_systems.evidence_selection.selectors import ScoredSelector
from steersman_systems.evidence_selection.sets import known_sets as sets
from steersman_systems.evidence_selection.tasks import EvidenceTask
from steersman_systems.evidence_selection.training.behaviour_cloning import CloneSettings, clone
from steersman_systems.evidence_selection.training.rounds import walks_over
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from steersman.policies.scorers import Scorer


_START_SHARE = 0.6
"""Share of a passage's score that passes to the passages it links to, as in the search."""
_START = CloneSettings(rounds=2, trees=TreeSettings(trees=60, learning_rate=0.1))


def trained(
    *, quiet: bool, data: Path, name: str, out: Path, source: str, may_stop: bool, picks: int,
    tokens: int, form: str, words_alone: bool, ray_address: str | None, home: Path | None,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Train a selector on a set, and write it to `out`.

    `source` is ``gold`` or ``feedback``. `ray_address` is a Ray cluster that draws selections;
    None: this process.

    Raises:
        DataError: the set is absent, an extra is missing, the feedback is too sparse, or the file
            cannot be written.
        InputError: `may_stop` with feedback, or `ray_address` without it.
    """
    if source == "gold" and ray_address is not None:
        raise InputError("--ray needs --from feedback, which draws selections; leave out "
                         "--ray with --from gold")  # fmt: skip
    if source == "feedback" and may_stop:
        raise InputError("--from feedback cannot learn when to stop; leave out --may-stop")
    limits = Limits(picks=picks, tokens=tokens, expanding="always", may_stop=may_stop)
    with ExitStack() as stack, progress_bar(quiet=quiet) as bar:
        embedder = opened_embedder(stack, home, words_alone=words_alone)
        task = bar.add_task(f"{name}: retrieving", total=None)
        prepared = prepare(
            name, data, embedder=embedder, form=form,
            by="gold" if source == "gold" else "answers",
            done=lambda count: bar.advance(task, count),
        )  # fmt: skip
        task = bar.add_task(f"{name}: learning from {source}", total=None)
        tasks = [EvidenceTask(pool, Environment(limits)) for pool in prepared.pools]
        scorer: Scorer = (
            clone(tasks, GoldExpert(), seed=seed) if source == "gold"
            else _from_feedback(tasks, seed, ray_address)
        )  # fmt: skip
    made_for = SelectorSetup(
        embedder=embedder.name if embedder is not None else "", picks=limits.picks,
        tokens=limits.tokens, added=limits.added, may_stop=may_stop, form=prepared.form, set=name,
    )  # fmt: skip
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(f".{out.name}.part")  # a killed process leaves no partial result
        partial.write_bytes(kept(scorer, made_for))
        partial.replace(out)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error}; choose another file with --out") from error
    return {
        "selector": str(out),
        "set": name,
        "learned_from": source,
        "questions": len(prepared.questions),
        "without_gold" if source == "gold" else "without_answer": prepared.skipped,
        "query_form": prepared.form,
    }


def _from_feedback(tasks: Sequence[EvidenceTask], seed: int, address: str | None) -> Scorer:
    """Return a scorer trained with RAFT from a search along links, without gold passages."""
    begun = clone(tasks, RankExpert(_START_SHARE), _START, seed=seed)
    return from_feedback(tasks, begun, seed, sample=walks_over(address))


def selected(
    *, question: str, data: Path, name: str, selector: Path | None, picks: int | None,
    may_stop: bool | None, words_alone: bool, home: Path | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Select passages for a stand-alone question.

    `selector` is a file of `trained`; None: the best passages by rank. `picks` and `may_stop` None:
    as in training.

    Raises:
        DataError: the set is absent, or the file cannot be read.
        StateError: the file is not a selector, or has other features.
        InputError: the question is blank, or the selector does not fit the options.
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
    why = [*reasons_of_picks(found), *[{}] * len(found.picked)]
    for step, (one, reasons) in enumerate(zip(found.picked, why, strict=False), 1):
        candidate = collection.candidates[collection.place_of[one]]
        told = ", ".join(f"{name} {value:+.2f}" for name, value in reasons.items())
        text = " ".join(candidate.text.split())[:160]
        rows.append({"step": step, "id": one, "title": candidate.title, "why": told, "text": text})
    return rows
