"""The sets give targets with texts, in parts that never overlap."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman_systems.interrogator.target_sets import load_targets
from steersman_systems.interrogator.targets import normalised


@pytest.fixture(scope="module")
def data():
    folder = os.environ.get("STEERSMAN_DATA")
    if folder is None:
        pytest.skip("set STEERSMAN_DATA to the directory of data sets")
    return Path(folder)


@pytest.fixture(scope="module")
def bfcl():
    try:
        return load_targets()
    except DataError as missing:
        pytest.skip(str(missing))


def _write(folder, name, rows):
    folder.mkdir(parents=True)
    with gzip.open(folder / name, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def test_requests_come_with_the_recorded_embeddings(bfcl):
    assert 1_200 < len(bfcl) <= 1_311
    assert all(target.name.startswith("bfcl:") for target in bfcl)
    lengths = [np.linalg.norm(target.vector) for target in bfcl]
    np.testing.assert_allclose(lengths, 1.0, atol=1e-12)
    assert len({normalised(target.text) for target in bfcl}) == len(bfcl)


@pytest.mark.slow
def test_warm_and_judged_targets_never_overlap(bfcl):
    warm, judged = (load_targets(part=part) for part in ("warm", "ab"))
    rows = [{target.row for target in targets} for targets in (warm, judged)]
    assert rows[0].isdisjoint(rows[1])
    assert rows[0] | rows[1] == {target.row for target in bfcl}
    assert len(judged) >= 300


def test_a_text_of_two_sets_is_one_target(tmp_path, words):
    _write(tmp_path / "clapnq", "questions.jsonl.gz", [{"question": "Who sings?"}])
    rows = [{"text": "who sings"}, {"text": "Mice eat cheese."}]
    _write(tmp_path / "scifact", "queries.jsonl.gz", rows)
    both = load_targets(("clapnq", "scifact"), data=tmp_path, embedder=words)
    assert [target.name for target in both] == ["clapnq:0", "scifact:1"]
    assert both[1].vector @ words.encode(["Mice eat cheese."])[0] == pytest.approx(1.0, abs=1e-3)


def test_some_of_a_set_are_the_same_always_and_the_first_are_any_of_them(tmp_path, words):
    rows = [{"question": f"Who is number {i}?"} for i in range(40)]
    _write(tmp_path / "clapnq", "questions.jsonl.gz", rows)
    options = {"data": tmp_path, "embedder": words}
    some = load_targets(("clapnq",), most=10, **options)
    more = load_targets(("clapnq",), most=20, **options)
    assert len(some) == 10
    assert {target.row for target in some} < {target.row for target in more}
    # Whoever takes the first ones does not take the first of the source.
    assert [target.row for target in more[:10]] == [target.row for target in some]
    assert [target.row for target in more] != sorted(target.row for target in more)


@pytest.mark.slow
def test_of_other_sets_all_but_what_may_be_learned_from_is_judged_on(tmp_path, words, bfcl):
    learned = load_targets(part="warm")
    assert [target.row for target in learned] == sorted(target.row for target in learned)
    rows = [{"question": f"Who is number {i}?"} for i in range(40)]
    rows += [{"question": f"  {target.text.upper()}"} for target in learned[:3]]
    _write(tmp_path / "clapnq", "questions.jsonl.gz", rows)
    options = {"data": tmp_path, "embedder": words}
    judged = load_targets(("clapnq",), part="ab", **options)
    assert sorted(target.row for target in judged) == list(range(40))
    equal = load_targets(("clapnq",), part="warm", **options)
    assert [target.row for target in equal] == [40, 41, 42]


@pytest.mark.parametrize(
    ("rows", "error"),
    [([{"text": 3}], DataError), ([{"claim": "x"}], DataError), ([{"text": " "}], DataError)],
)
def test_another_format_is_told(tmp_path, words, rows, error):
    _write(tmp_path / "scifact", "queries.jsonl.gz", rows)
    with pytest.raises(error, match="not in the expected format"):
        load_targets(("scifact",), data=tmp_path, embedder=words)


def test_any_folder_with_questions_or_queries_is_a_set(tmp_path, words):
    options = {"data": tmp_path, "embedder": words}
    for folder, name, row in (
        ("mine", "questions.jsonl", {"question": "Who\u2028sings?"}),  # one line of JSON
        ("yours", "queries.jsonl", {"text": "Mice eat cheese."}),
    ):
        (tmp_path / folder).mkdir()
        content = json.dumps(row, ensure_ascii=False) + "\r\n"
        (tmp_path / folder / name).write_text(content, encoding="utf-8", newline="")
        (target,) = load_targets((folder,), **options)
        assert (target.name, [target.text]) == (f"{folder}:0", list(row.values()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds neither questions.jsonl nor queries.jsonl"):
        load_targets(("empty",), **options)
    with pytest.raises(InputError, match=r"allowed: bfcl, .* and folders of the data directory"):
        load_targets(("nowhere",), **options)


def test_damaged_and_missing_files_are_told(tmp_path, words):
    with pytest.raises(DataError, match="primeqa/clapnq"):
        load_targets(("clapnq",), data=tmp_path, embedder=words)
    with pytest.raises(DataError, match="needs a directory"):
        load_targets(("clapnq",), embedder=words)
    folder = tmp_path / "clapnq"
    folder.mkdir()
    (folder / "questions.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="not in the expected format"):
        load_targets(("clapnq",), data=tmp_path, embedder=words)


def test_what_cannot_be_loaded_is_refused(tmp_path):
    with pytest.raises(InputError, match="allowed: bfcl, clapnq"):
        load_targets(("squad",))
    with pytest.raises(InputError, match="omit it"):
        load_targets(most=0)
    _write(tmp_path / "clapnq", "questions.jsonl.gz", [{"question": "Who?"}])
    with pytest.raises(InputError, match="give an embedder"):
        load_targets(("clapnq",), data=tmp_path)


@pytest.mark.slow
def test_the_public_sets_are_read(data, words):
    names = ("clapnq", "scifact", "metatool")
    targets = load_targets(names, data=data, most=50, embedder=words)
    assert [sum(t.name.startswith(name) for t in targets) for name in names] == [50, 50, 50]
