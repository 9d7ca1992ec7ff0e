"""Set of questions with their passages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from steersman.errors import DataError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.retrieval.documents.passage import Passage
    from steersman_systems.evidence_selection.question import Question


@dataclass(frozen=True, slots=True)
class EvidenceSet:
    """Questions with their passages and known facts.

    Attributes:
        name: name of the set.
        passages: passages in the order of the files.
        questions: in the order of the files; ``gold`` and ``answers`` are empty if unknown.
        pools: question id -> positions in `passages`, for questions with published candidates;
            other questions need retrieval.
        rewrites: question id -> stand-alone question by a person, if known; selectors must not use
            it.
        splits: question id -> split of the set, if named.
        unfindable: gold ids without a passage, which limit recall.
        left_out: number of passages above the limit, not read; a smaller collection is easier to
            search.
        note: further limits of figures, such as a missing collection; "" for none.
    """

    name: str
    passages: tuple[Passage, ...] = field(repr=False)
    questions: tuple[Question, ...] = field(repr=False)
    pools: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    rewrites: Mapping[str, str] = field(default_factory=dict, repr=False)
    splits: Mapping[str, str] = field(default_factory=dict, repr=False)
    unfindable: frozenset[str] = field(default=frozenset(), repr=False)
    left_out: int = 0
    note: str = ""

    @property
    def conversations(self) -> dict[str, str]:
        """Question id -> its conversation, if any.

        A split must hold out whole conversations.
        """
        return {one.id: one.conversation for one in self.questions if one.conversation}

    def part(self, split: str) -> EvidenceSet:
        """Return the set with the questions of one split.

        Raises:
            DataError: the split does not exist.
        """
        chosen = tuple(one for one in self.questions if self.splits.get(one.id) == split)
        if not chosen:
            known = ", ".join(sorted(set(self.splits.values()))) or "none"
            raise DataError(f"{self.name} has no split {split!r}; it has {known}")
        return replace(self, questions=chosen)

    def first(self, count: int) -> EvidenceSet:
        """Return the set with its first questions and all passages.

        Args:
            count: number of questions, ≥ 1.

        Raises:
            InputError: `count` is below 1.
        """
        if count < 1:
            raise InputError(f"count is {count!r}; allowed: 1 or more")
        return replace(self, questions=self.questions[:count])

    def answerable(self) -> EvidenceSet:
        """Return the set with the questions that have gold passages."""
        return replace(self, questions=tuple(one for one in self.questions if one.gold))

    def answered(self) -> EvidenceSet:
        """Return the set with the questions that have answers."""
        return replace(self, questions=tuple(one for one in self.questions if one.answers))
