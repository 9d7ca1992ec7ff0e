"""A manifest names its data so exactly that nothing else passes for them."""

import gzip
import json
from datetime import date

import pytest

from steersman.errors import DataError, InputError, SpecError
from steersman_systems.rag_tuner.manifest import check, describe, load_manifest, write_manifest

TODAY = date(2026, 11, 21)


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "handbook"
    made.mkdir()
    passages = lines(*({"id": f"p{n}", "title": "", "text": f"Rule {n}."} for n in range(3)))
    (made / "passages.jsonl.gz").write_bytes(gzip.compress(passages.encode(), mtime=0))
    asked = [
        {
            "id": "a",
            "question": "What is rule 0?",
            "gold": ["p0"],
            "split": "train",
            "type": "what",
        },
        {"id": "b", "question": "Why rule 1?", "gold": ["p1"], "split": "test", "type": "why"},
        {"id": "c", "question": "Why rule 2?", "gold": ["p2"], "split": "test", "type": "why"},
    ]
    (made / "questions.jsonl").write_text(lines(*asked))
    return made


def described(folder):
    return describe(
        folder, id="handbook-v1", source="s3://sets/handbook", commit="9e1c3f0",
        updated_at=TODAY, filters=("Drafts were left out.",),
    )  # fmt: skip


def test_a_manifest_says_what_is_there_and_comes_back_from_its_file(folder, tmp_path):
    manifest = described(folder)
    assert (manifest.size, manifest.splits) == (3, {"test": 2, "train": 1})
    assert manifest.meta.categories == ("what", "why")
    assert sorted(manifest.files) == ["passages.jsonl.gz", "questions.jsonl"]
    file = tmp_path / "manifest.yaml"
    write_manifest(manifest, file)
    assert file.read_text().startswith("id: handbook-v1\nsource: s3://sets/handbook\n")
    again = load_manifest(file)
    assert (again, again.sha256) == (manifest, manifest.sha256)
    assert [one.id for one in check(again, folder).questions] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda f: (f / "questions.jsonl").write_text(""),
            "questions.jsonl has the SHA-256",
        ),
        (lambda f: (f / "passages.jsonl.gz").unlink(), "passages.jsonl.gz is missing"),
        (lambda f: (f / "corpus.jsonl").write_text(""), "corpus.jsonl is there, and the manifest"),
    ],
)
def test_other_data_are_refused_with_all_that_differs(folder, change, says):
    manifest = described(folder)
    change(folder)
    with pytest.raises(DataError, match="is not handbook-v1") as caught:
        check(manifest, folder)
    assert says in str(caught.value)
    assert "describe this data as another data set" in str(caught.value)


def test_counts_that_a_person_mistyped_are_told(folder):
    manifest = described(folder)
    wrong = manifest.model_copy(update={"size": 4, "splits": {"test": 3, "train": 1}})
    with pytest.raises(DataError) as caught:
        check(wrong, folder)
    assert "size is 3; the manifest says 4" in str(caught.value)
    assert "splits is {'test': 2, 'train': 1}" in str(caught.value)


def test_a_damaged_manifest_names_line_and_field(folder, tmp_path):
    file = tmp_path / "manifest.yaml"
    write_manifest(described(folder), file)
    file.write_text(file.read_text().replace("size: 3", "size: many").replace("commit:", "comit:"))
    with pytest.raises(SpecError) as caught:
        load_manifest(file)
    assert "size" in str(caught.value)
    assert "comit" in str(caught.value)


def test_what_no_manifest_can_say_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match="invalid manifest"):
        describe(folder, id="Hand Book", source="x", commit="y", updated_at=TODAY)
    with pytest.raises(DataError, match="no collection found"):
        describe(tmp_path, id="none", source="x", commit="y", updated_at=TODAY)


def test_judgements_by_split_belong_to_what_a_manifest_names(tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(lines({"_id": "1", "text": "Rule."}))
    (folder / "queries.jsonl").write_text(lines({"_id": "a", "text": "Which rule?"}))
    judged = folder / "qrels" / "test.tsv"
    judged.write_text("query-id\tcorpus-id\tscore\na\t1\t1\n")
    manifest = described(folder)
    assert sorted(manifest.files) == ["corpus.jsonl", "qrels/test.tsv", "queries.jsonl"]
    assert manifest.splits == {"test": 1}
    judged.write_text("query-id\tcorpus-id\tscore\na\t1\t2\n")
    with pytest.raises(DataError, match=r"qrels/test.tsv has the SHA-256"):
        check(manifest, folder)
    judged.unlink()
    (folder / "qrels.tsv").write_text("a\t1\t1\n")
    (folder / "qrels" / "train.tsv").write_text("not read")
    assert sorted(described(folder).files) == ["corpus.jsonl", "qrels.tsv", "queries.jsonl"]
