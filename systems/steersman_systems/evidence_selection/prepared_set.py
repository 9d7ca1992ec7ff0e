"""Preparation of a question set: reading, linking and retrieval of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from steersman.errors import DataError, InputError
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.query_forms import query_forms
from steersman_systems.evidence_selection.sets import known_sets as sets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from steersman.providers.judges.judge import Judge
    from steersman.retrieval.dense import Embedder
    from steersman_systems.evidence_selection.pool import Pool
    from steersman_systems.evidence_selection.query_forms import QueryForm
    from steersman_systems.evidence_selection.question import Question
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

KEYWORDS, LAST = "keywords", "last"


@dataclass(frozen=True)
class Prepared:
    """Question set with a searchable collection and candidates.

    Attributes:
        evidence: set of the questions that have gold passages or answers.
        collection: all its passages.
        forms: query forms by name.
        form: name of the query form that was used.
        pools: one per question.
        groups: question id -> its conversation.
        skipped: questions without gold or answers.
    """

    evidence: EvidenceSet
    collection: Collection
    forms: Mapping[str, QueryForm]
    form: str
    pools: tuple[Pool, ...]
    groups: Mapping[str, str]
    skipped: int

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions with gold or answers."""
        return self.evidence.questions

    @property
    def note(self) -> str:
        """Limits of the set and number of skipped questions."""
        known = self.collection.place_of
        lost = {one for asked in self.questions for one in asked.gold if one not in known}
        told = [self.evidence.note] if self.evidence.note else []
        if self.skipped:
            few = f"{self.skipped:,} of its questions have nothing to judge by"
            told.append(f"{few}, and were left out")
        if lost:
            told.append(f"{len(lost):,} of its gold passages are not in its collection and "
                        "cannot be picked")  # fmt: skip
        return "; ".join(told)

    @property
    def conversational(self) -> bool:
        """Whether any question has earlier turns."""
        return any(one.history for one in self.questions)


def prepare(
    name: str,
    data: Path,
    *,
    embedder: Embedder | None,
    form: str = "",
    most: int | None = None,
    size: int = 100,
    judge: Judge | None = None,
    at_most: int = sets.AT_MOST,
    by: Literal["gold", "answers"] = "gold",
    done: Callable[[int], None] | None = None,
) -> Prepared:
    """Read a set, link its passages, and retrieve candidates for each question.

    Args:
        embedder: of passages and queries; None: search by words only.
        most: maximum number of questions, from the first; None: all.
        size: candidates per question, 1 to 100.
        done: called with 1 after each question.

    Raises:
        DataError: the set is missing or invalid, no question has the required fields, or an extra
            is missing.
        InputError: the form does not exist, or `most` is below 1.
    """
    whole = sets.load(name, data, at_most=at_most)
    evidence = whole.answerable() if by == "gold" else whole.answered()
    if not evidence.questions:
        what = "gold passages" if by == "gold" else "an answer"
        raise DataError(f"no question of {name} has {what}; nothing can be judged by it")
    skipped = len(whole.questions) - len(evidence.questions)
    if most is not None:
        evidence = evidence.first(most)
    collection = Collection(evidence.passages, embedder=embedder)
    return ready(
        evidence, collection, form=form, size=size, judge=judge, skipped=skipped, done=done
    )


def ready(
    evidence: EvidenceSet,
    collection: Collection,
    *,
    form: str = "",
    size: int = 100,
    judge: Judge | None = None,
    skipped: int = 0,
    done: Callable[[int], None] | None = None,
) -> Prepared:
    """Retrieve candidates for each question of a set from an existing collection.

    Raises:
        InputError: the form does not exist.
    """
    forms = query_forms(collection, judge)
    talk = any(one.history for one in evidence.questions)
    chosen = form or (KEYWORDS if talk else LAST)
    if chosen not in forms:
        known = ", ".join(forms)
        raise InputError(f"unknown query form {chosen!r}; allowed: {known}")
    pools = []
    for question in evidence.questions:
        pools.append(collection.pool(question, query=forms[chosen](question), size=size))
        if done is not None:
            done(1)
    groups = {one.id: one.conversation or one.id for one in evidence.questions}
    return Prepared(evidence, collection, forms, chosen, tuple(pools), groups, skipped)
