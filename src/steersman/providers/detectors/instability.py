"""Instability: answers to one question that differ between runs."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman.features import folded_words
from steersman.providers.detectors.flags import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence


class Instability:
    """Instability of answers to one question: 1 minus the mean word overlap of all pairs.

    Overlap is the F1 of the word counts of two answers, without case and punctuation. It compares
    words, not meanings: paraphrases count as different, and a "not" changes little.

    Args:
        threshold: instability above which answers are flagged, 0 to below 1.

    Raises:
        InputError: the threshold is out of range.

    >>> Instability().value(["At nine.", "at nine", "Nobody knows"])
    0.6666666666666667
    """

    name = "instability"

    def __init__(self, threshold: float = 0.5) -> None:
        if not 0 <= threshold < 1:
            raise InputError(f"threshold is {threshold!r}; allowed: 0 to below 1")
        self.threshold = threshold

    def value(self, answers: Sequence[str]) -> float:
        """Return the instability of answers.

        Returns:
            0 for identical words, 1 for no common words.

        Raises:
            InputError: fewer than two answers.
        """
        if len(answers) < 2:
            raise InputError(
                f"{len(answers)} answers; pass at least two answers to the same question"
            )
        said = [Counter(folded_words(one)) for one in answers]
        pairs = list(combinations(said, 2))
        return 1.0 - sum(_overlap(one, other) for one, other in pairs) / len(pairs)

    def detect_among(self, answers: Sequence[str]) -> tuple[Flag, ...]:
        """Return a flag if the instability is above the threshold.

        Returns:
            One flag over the whole first answer, or none.

        Raises:
            InputError: fewer than two answers.
        """
        found = self.value(answers)
        if found <= self.threshold:
            return ()
        return (Flag(self.name, "answers_differ", found, 0, len(answers[0])),)


def _overlap(one: Counter[str], other: Counter[str]) -> float:
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0
