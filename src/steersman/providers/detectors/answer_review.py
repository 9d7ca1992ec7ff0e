"""Logged answers of a run for detectors, to select those for human review."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from steersman.providers.detectors.flags import Detector, Flag
    from steersman.providers.detectors.instability import Instability
    from steersman.providers.detectors.personal import PersonalData

_LARGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class Flagged:
    """An answer that a detector flagged.

    Args:
        detector: Who.
        kinds: Of what was found, each once.
        score: The highest, in [0, 1].
        subject: The run's folder, the prompt, the question's id and the line.
        excerpt: Question and answer, with personal data masked.
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
) -> Iterator[Flagged]:
    """Yield the answers of a file that some detector flags.

    Args:
        instability: Is asked of answers to the same question by the same prompt; None: nobody is.

    Raises:
        DataError: The file cannot be read, or a line is none of an answer.
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
) -> Flagged:
    """Return what one detector flags as it stands on the review list."""
    shown = "\n".join([f"Question: {question}", *(f"Answer: {one}" for one in answers)])
    return Flagged(
        detector=flags[0].detector,
        kinds=tuple(sorted({flag.kind for flag in flags})),
        score=max(flag.score for flag in flags),
        # A name of the file system may be long, and the list knows an answer by it.
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
