"""The benchmark of answers, query forms and judges, on sets small enough to count by hand."""

import json

import pytest

pytest.importorskip("bm25s", reason="the extra rag")

from benchmarks.evidence_answers import run
from benchmarks.report import Options
from steersman.errors import DataError


def test_judges_stand_beside_people_and_their_distillate_beside_length(tmp_path):
    folder = tmp_path / "judge_human"
    folder.mkdir()
    pairs = [
        {"input": f"Say {n}.", "output_1": f"{n}.", "output_2": f"It is {n}, I think.",
         "label": 1 + n % 2, "subset": "made",
         "judges": {"GPT-4/Vanilla": {"orig": "1", "swapped": "1" if n < 9 else "2"}}}
        for n in range(12)
    ]  # fmt: skip
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    (folder / "llmbar_12.jsonl").write_text(lines, encoding="utf-8")
    found = {one.name: one for one in run(Options(data=tmp_path, sets=("judge_human",)))}
    agreed = found["GPT-4/Vanilla, both orders agree: agreement with people"]
    assert agreed.value == pytest.approx(5 / 9)
    assert agreed.peers["abstains"] == pytest.approx(3 / 12)
    assert found["GPT-4/Vanilla: first shown beyond one half"].value == pytest.approx(1.5 / 12)
    longer = found["GPT-4/Vanilla: longer answer taken, beyond people"]
    assert longer.value == pytest.approx(0 - 4 / 9)
    assert not [name for name in found if name.startswith("gpt-3.5")]
    ahead = found["reward model out of GPT-4/Vanilla (12 pairs), over the length baseline"]
    assert ahead.low <= ahead.value <= ahead.high


def test_an_absent_set_is_told(tmp_path):
    with pytest.raises(DataError, match="'mtrag' is not in"):
        list(run(Options(data=tmp_path, sets=("mtrag",))))
