"""Human verdicts are read as they are published, with what models said in both orders."""

import json

import pytest

from steersman.errors import DataError
from steersman.providers.judges.agreement import agreement
from steersman.providers.judges.pairwise import Pair, Preference
from steersman_systems.evidence_selection.judged_pairs import (
    beside_people,
    load_human_pairs,
    recorded,
)

LLMBAR = {
    "input": "Sum up.", "output_1": "Short.", "output_2": "A longer one.", "label": 1,
    "subset": "Natural",
    "judges": {"GPT-4/Vanilla": {"orig": "1", "swapped": "1"},
               "Falcon/CoT": {"orig": "2", "swapped": "none"}},
}  # fmt: skip
PANDALM = {
    "idx": 0, "instruction": "Rewrite.", "input": "This.", "response1": True, "response2": "That.",
    "annotator1": 2, "annotator2": 0, "annotator3": 2, "gpt35": "1", "pandalm7b": 2,
}  # fmt: skip


def write(folder, name, *rows):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_both_sources_are_read(tmp_path):
    write(tmp_path, "llmbar_2.jsonl", LLMBAR)
    torn = PANDALM | {"annotator1": 0, "annotator2": 1}
    write(tmp_path, "pandalm_2.jsonl", PANDALM, torn)
    bar, panda = load_human_pairs(tmp_path)
    assert (bar.pair, bar.human, bar.source) == (
        Pair("Sum up.", "Short.", "A longer one."), 1, "LLMBar/Natural",
    )  # fmt: skip
    assert bar.judges == {"GPT-4/Vanilla": (1, 1), "Falcon/CoT": (2, None)}
    assert (panda.pair, panda.human) == (Pair("Rewrite.\nThis.", "True", "That."), 2)
    assert panda.judges == {"gpt-3.5-turbo": (1, None), "PandaLM-7B": (2, None)}
    assert agreement(recorded([bar, panda], "GPT-4/Vanilla")).agree == 1.0
    assert recorded([bar, panda], "gpt-3.5-turbo") == []


def test_a_judge_just_asked_stands_beside_people(tmp_path):
    write(tmp_path, "llmbar_2.jsonl", LLMBAR, LLMBAR)
    pairs = load_human_pairs(tmp_path)
    said = [
        Preference("first", shown=("first", "first")),
        Preference(None, "malformed", shown=("second", None)),
    ]
    found = agreement(beside_people(pairs, said))
    assert (found.pairs, found.judged, found.unread, found.agree) == (2, 1, 1, 1.0)


def test_what_is_absent_or_broken_is_told(tmp_path):
    with pytest.raises(
        DataError, match=r"human verdicts not found: .*; the originals are at github.com/princeton"
    ):
        load_human_pairs(tmp_path / "none")
    with pytest.raises(DataError, match=r"neither llmbar\*.jsonl nor pandalm"):
        load_human_pairs(tmp_path)
    write(tmp_path, "llmbar_2.jsonl", LLMBAR, LLMBAR | {"label": 3})
    with pytest.raises(DataError, match=r"line 2: label is 3; it must be 1 or 2"):
        load_human_pairs(tmp_path)
    write(tmp_path, "llmbar_2.jsonl", LLMBAR)
    write(tmp_path, "pandalm_2.jsonl", PANDALM | {"response2": None})
    with pytest.raises(DataError, match=r"line 1: response2 is None; it must be an answer"):
        load_human_pairs(tmp_path)
