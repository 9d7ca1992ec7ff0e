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
    """A set of questions, their passages, and what is known of both.

    Attributes:
        name: of the set.
        passages: all that can be picked, in the order of the files.
        questions: in the order of the files; one without ``gold`` has no known passage, one without
            ``answers`` no known answer.
        pools: question id -> positions in `passages`, of questions that come with
            candidates; for the others, candidates have to be retrieved.
        rewrites: question id -> the question as a person wrote it to stand alone, where it is
            known; nothing may choose by it.
        splits: question id -> the part of the set it belongs to, where it is named.
        unfindable: gold ids without a passage; they cannot be picked, which limits recall.
        left_out: passages of the set that were not read, since there are too many; the fewer are
            searched, the easier it is to find the right ones.
        note: what else must be known to judge figures by it, such as that its collection is not
            there; "" if nothing.
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
        """Question id -> the conversation it is a turn of, where there are any.

        A held-out split must hold out whole conversations.
        """
        return {one.id: one.conversation for one in self.questions if one.conversation}

    def part(self, split: str) -> EvidenceSet:
        """Return the set with the questions of one split alone.

        Raises:
            DataError: the split does not exist.
        """
        chosen = tuple(one for one in self.questions if self.splits.get(one.id) == split)
        if not chosen:
            known = ", ".join(sorted(set(self.splits.values()))) or "none"
            raise DataError(f"{self.name} has no split {split!r}; it has {known}")
        return replace(self, questions=chosen)

    def first(self, count: int) -> EvidenceSet:
        """Return the set with its first questions alone; all passages stay.

        Args:
            count: of questions, ≥ 1.

        Raises:
            InputError: `count` is below 1.
        """
        if count < 1:
            raise InputError(f"count is {count!r}; allowed: 1 or more")
        return replace(self, questions=self.questions[:count])

    def answerable(self) -> EvidenceSet:
        """Return the set with the questions alone whose gold passages are known."""
        return replace(self, questions=tuple(one for one in self.questions if one.gold))

    def answered(self) -> EvidenceSet:
        """Return the set with the questions alone whose answers are known."""
        return replace(self, questions=tuple(one for one in self.questions if one.answers))
