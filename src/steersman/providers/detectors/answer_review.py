"""Answer review: selects logged answers of a run for human review, by detectors."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError, InputError
from steersman.features import folded_words
from steersman.providers.detectors.flags import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from steersman.providers.detectors.flags import Detector
    from steersman.providers.detectors.national_ids import PersonalData


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
        counts = [Counter(folded_words(one)) for one in answers]
        pairs = list(combinations(counts, 2))
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


_LARGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class FlaggedAnswer:
    """An answer that a detector flagged.

    Args:
        detector: detector name.
        kinds: kinds of its findings, unique and sorted.
        score: highest score, in [0, 1].
        subject: run folder, prompt, question id and line number.
        excerpt: question and answer, with personal data masked.
    """

    detector: str
    kinds: tuple[str, ...]
    score: float
    subject: str
    excerpt: str


def flagged_answers(
    file: Path,
    detectors: Sequence[Detector],
    personal: PersonalData,
    instability: Instability | None = None,
) -> Iterator[FlaggedAnswer]:
    """Yield the answers of a file that any detector flags.

    Args:
        instability: detector for several answers to one question and prompt; None: not used.

    Raises:
        DataError: the file cannot be read, or a line is not an answer.
    """
    rows = _rows(file)
    for number, row in enumerate(rows, 1):
        subject = f"{file.parent.name}/{row['prompt']}/{row['question']}/{number}"
        for detector in detectors:
            flags = detector.detect(row["answer"])
            if flags:
                yield flagged(flags, subject, row["text"], [row["answer"]], personal)
    if instability is None:
        return
    answers: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        answers.setdefault((row["prompt"], row["question"]), []).append(row["answer"])
    asked = {(row["prompt"], row["question"]): row for row in rows}
    for key, several in answers.items():
        flags = instability.detect_among(several) if len(several) > 1 else ()
        if flags:
            subject = "/".join((file.parent.name, *key))
            yield flagged(flags, subject, asked[key]["text"], several, personal)


def flagged(
    flags: Sequence[Flag],
    subject: str,
    question: str,
    answers: Sequence[str],
    personal: PersonalData,
) -> FlaggedAnswer:
    """Return the entry of the review list for one detector's flags."""
    shown = "\n".join([f"Question: {question}", *(f"Answer: {one}" for one in answers)])
    return FlaggedAnswer(
        detector=flags[0].detector,
        kinds=tuple(sorted({flag.kind for flag in flags})),
        score=max(flag.score for flag in flags),
        # A file name may be long, and the list identifies an answer by its subject.
        subject=subject.encode("utf-8", "replace")[-500:].decode("utf-8", "ignore"),
        excerpt=personal.masked(shown),
    )


def _rows(file: Path) -> list[dict[str, Any]]:
    found = []
    try:
        if file.stat().st_size > _LARGEST:
            raise DataError(f"{file} is larger than {_LARGEST:,} bytes; split it")
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be read: {error}; give the predictions.jsonl of a run"
        raise DataError(message) from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append(_row(line, f"{file}, line {number}"))
    return found


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        given = {name: row[name] for name in ("question", "text", "prompt", "answer")}
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"{where} is not an answer ({error!r}); expected question, text, prompt and answer"
        )
        raise DataError(message) from None
    if not all(isinstance(value, str) for value in given.values()):
        raise DataError(f"{where}: question, text, prompt and answer must be texts")
    return given
