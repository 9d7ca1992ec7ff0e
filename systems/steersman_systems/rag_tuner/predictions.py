"""Answers of live evaluations in a run folder, and their log.

``predictions.jsonl`` and ``contexts.jsonl`` are exported with the run; `steersman review scan`
reads the first. ``steersman tune record --log`` reads the log.
"""

from __future__ import annotations

import json
from math import isnan
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman.retrieval.documents.passage import passage_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from steersman.retrieval.documents.passage import Passage
    from steersman_systems.rag_tuner.evaluator import EvaluationResult
    from steersman_systems.rag_tuner.judged_collections import Question
    from steersman_systems.rag_tuner.reward import Batch


def write_predictions(
    folder: Path,
    questions: Sequence[Question],
    passages: Iterable[Passage],
    found: Sequence[EvaluationResult],
) -> int:
    """Write the answers of live evaluations.

    Raises:
        DataError: The files cannot be written.
    """
    rows = list(_rows(questions, found))
    used = dict.fromkeys(name for row in rows for name in row["contexts"])
    texts = {one.id: passage_text(one) for one in passages if one.id in used}
    contexts = [{"id": name, "text": texts[name]} for name in used if name in texts]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, lines in (("predictions", rows), ("contexts", contexts)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror}; name another folder"
        raise DataError(message) from None
    return len(rows)


def append_log(file: Path, questions: Sequence[Question], found: Sequence[EvaluationResult]) -> int:
    """Append live evaluations to a log for later tuning.

    Raises:
        DataError: The log cannot be written.
    """
    rows = [row for one in found if one.batch is not None for row in _logged(questions, one.batch)]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as log:
            log.write("".join(json.dumps(row) + "\n" for row in rows))
    except OSError as error:
        raise DataError(f"{file} cannot be written: {error.strerror}; name another") from None
    return len(rows)


def _logged(questions: Sequence[Question], batch: Batch) -> Iterator[dict[str, Any]]:
    parts = batch.configuration.parts()
    for row, place in enumerate(batch.queries.tolist()):
        question = questions[place]
        values = [None if isnan(value) else value for value in batch.quality[row].tolist()]
        yield {
            "question": question.id,
            "configuration": parts,
            "quality": dict(zip(batch.measures, values, strict=True)),
            "latency_ms": float(batch.latency_ms[row]),
            "cost": float(batch.cost[row]),
            "failed": bool(batch.failed[row]),
            "violation": bool(batch.violations[row]),
            "unstable": bool(batch.unstable[row]),
            "category": question.category,
            "split": question.split,
            "conversation": question.conversation,
        }


def _rows(
    questions: Sequence[Question], found: Sequence[EvaluationResult]
) -> Iterator[dict[str, Any]]:
    for one in found:
        for place, told in one.told.items():
            question = questions[place]
            for answer in told.said:
                yield {
                    "question": question.id,
                    "text": question.text,
                    "prompt": one.configuration.prompt,
                    "configuration": str(one.configuration),
                    "contexts": list(told.contexts),
                    "answer": answer,
                    "quality": list(told.quality),
                    "latency_ms": told.latency_ms,
                    "cost_usd": told.cost_usd,
                }
