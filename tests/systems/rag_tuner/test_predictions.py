"""Answers of live evaluations lie in the folder of a run, as the review list reads them."""

from __future__ import annotations

import json

import pytest

from steersman.db.judge_cache import JudgeCache
from steersman.errors import DataError
from steersman.providers.detectors.answer_review import flagged_answers
from steersman.providers.detectors.national_ids import PersonalData
from steersman_systems.rag_tuner.log_reader import read_log
from steersman_systems.rag_tuner.predictions import append_log, write_predictions
from tests.systems.rag_tuner.live import (
    ALL,
    QUESTIONS,
    WORDS,
    Written,
    answers,
    evaluator,
    passages,
)

pytest.importorskip("bm25s")


def lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_what_was_evaluated_live_is_a_log_to_tune_on(tmp_path):
    file, live = tmp_path / "logs" / "live.jsonl", evaluator(answers=answers(Written()))
    found = live.measure(WORDS, ALL)
    assert append_log(file, QUESTIONS, [found]) == 3
    assert append_log(file, QUESTIONS, [found]) == 3
    log = read_log([file], "pumps")
    assert (log.queries, log.about["asked_again"]) == (("q1", "q2", "q3"), 3)
    again = log.evaluate(WORDS, ALL)
    assert again.measures == ("faithfulness", "relevancy")
    assert again.quality.tolist() == found.batch.quality.tolist()
    assert again.latency_ms.tolist() == found.batch.latency_ms.tolist()
    with pytest.raises(DataError, match="cannot be written"):
        append_log(tmp_path / "logs", QUESTIONS, [found])


def test_answers_and_what_they_came_from_are_written(tmp_path):
    class Telling(Written):
        def complete(self, prompt, *, max_tokens, timeout_s):
            said = super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
            return "Ask ann@example.org." if "PASSAGES" in prompt and "pump" in prompt else said

    kept = JudgeCache(tmp_path / "kept.sqlite")
    asked = answers(Telling())
    found = evaluator(kept=kept, answers=asked).measure(WORDS, ALL)
    assert write_predictions(tmp_path / "run", QUESTIONS, passages(), [found]) == 3
    rows = lines(tmp_path / "run" / "predictions.jsonl")
    assert [row["question"] for row in rows] == ["q1", "q2", "q3"]
    assert rows[0]["text"] == QUESTIONS[0].text
    assert rows[0]["configuration"] == str(WORDS)
    assert rows[0]["contexts"][0] == "pumps#0"
    contexts = lines(tmp_path / "run" / "contexts.jsonl")
    assert {"id": "pumps#0", "text": "A worn bearing makes a pump hum."} in contexts
    assert {row["id"] for row in contexts} == {name for row in rows for name in row["contexts"]}
    personal = PersonalData()
    flagged = list(flagged_answers(tmp_path / "run" / "predictions.jsonl", [personal], personal))
    assert {one.kinds for one in flagged} == {("email",)}
    # What is kept knows them too.
    again = evaluator(kept=kept, answers=asked).measure(WORDS, ALL)
    write_predictions(tmp_path / "again", QUESTIONS, passages(), [again])
    assert lines(tmp_path / "again" / "predictions.jsonl") == rows


def test_without_answers_there_is_nothing_to_write_and_a_file_is_no_folder(tmp_path):
    found = evaluator().measure(WORDS, ALL)
    assert write_predictions(tmp_path / "run", QUESTIONS, passages(), [found]) == 0
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="cannot be written"):
        write_predictions(tmp_path / "file", QUESTIONS, passages(), [found])
