"""Answers to one question that say different things from run to run."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman.features import folded_words
from steersman.llm.detectors.flags import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence


class Instability:
    """How unlike the answers to one question are: 1 minus the mean word overlap of all pairs.

    Overlap is the F1 of the words of two answers, each counted as often as it stands; case and
    punctuation do not count. It sees words, not meanings: two answers that say the same in other
    words count as different, and a "not" hardly counts.

    Args:
        threshold: above which answers are flagged, 0 to below 1.

    Raises:
        InputError: a threshold out of its range.

    >>> Instability().value(["At nine.", "at nine", "Nobody knows"])
    0.6666666666666667
    """

    name = "instability"

    def __init__(self, threshold: float = 0.5) -> None:
        if not 0 <= threshold < 1:
            raise InputError(f"threshold is {threshold!r}; allowed: 0 to below 1")
        self.threshold = threshold

    def value(self, answers: Sequence[str]) -> float:
        """Return how unlike some answers are.

        Args:
            answers: to the same question by the same configuration, two or more.

        Returns:
            0 for the same words always, 1 for none in common.

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
        """Return a flag if the answers are too unlike.

        Args:
            answers: as for `value`.

        Returns:
            One flag, over the whole of the first answer, or none.

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
