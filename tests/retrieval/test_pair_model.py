"""Exported models of pairs are read from a folder and run pair by pair; others are refused."""

import json
import re
import sys

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.retrieval.pair_model import PairModel, PairWeights
from steersman.retrieval.rerank import CrossEncoder
from steersman.retrieval.results import SearchSettings
from steersman.retrieval.searcher import Searcher
from tests.retrieval.passages import whole
from tests.retrieval.tiny_models import write

pytest.importorskip("onnxruntime")
WORDS = ["a", "wing", "lifts"]


def model(folder):
    return PairModel(PairWeights.of_folder(folder))


@pytest.mark.parametrize("length", ["tokens", 6])
def test_logits_are_the_models(tmp_path, length):
    write(tmp_path, WORDS, signs=(1, -1), length=length)
    logits = model(tmp_path).logits(["a wing", "lifts"], ["lifts", "nobody"])
    assert logits.tolist() == [[6.0, -6.0], [3.0, -3.0]]


def test_long_texts_are_cut_to_what_the_model_reads(tmp_path):
    write(tmp_path / "any", WORDS)
    write(tmp_path / "six", WORDS, length=6)
    long = "lifts " * 5_000
    assert model(tmp_path / "any").logits([long], [long]).tolist() == [[3.0 * 512]]
    assert model(tmp_path / "six").logits([long], ["a"]).tolist() == [[3.0 * 5 + 1]]


def test_no_pair_depends_on_its_batch(tmp_path):
    found = model(write(tmp_path, WORDS))
    firsts, seconds = ["a", "a wing lifts", ""], ["wing", "a", "a"]
    each = [found.logits([one], [other])[0] for one, other in zip(firsts, seconds, strict=True)]
    np.testing.assert_array_equal(found.logits(firsts, seconds), each)
    assert found.logits([], []).shape[0] == 0


def test_texts_without_partners_are_refused(tmp_path):
    with pytest.raises(InputError, match="2 texts are paired with 1"):
        model(write(tmp_path, WORDS)).logits(["a", "b"], ["c"])


def test_labels_come_from_the_config_in_the_order_of_their_numbers(tmp_path):
    write(tmp_path, WORDS)
    assert PairWeights.of_folder(tmp_path).labels == ()
    named = {"10": "LATE", "2": "Neutral", "0": "Entailment"}
    (tmp_path / "config.json").write_text(json.dumps({"id2label": named}), encoding="utf-8")
    assert PairWeights.of_folder(tmp_path).labels == ("entailment", "neutral", "late")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.onnx", None),
        ("tokenizer.json", None),
        ("tokenizer.json", b"\xff"),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b'{"id2label": {"one": "x"}}'),
    ],
)
def test_a_folder_without_a_model_says_what_to_do(tmp_path, file, content):
    write(tmp_path, WORDS)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=r"no usable model in .*: .*optimum-cli export onnx"):
        PairWeights.of_folder(tmp_path)


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
def test_a_damaged_model_is_named(tmp_path, file):
    write(tmp_path, WORDS)
    (tmp_path / file).write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"is not a usable ONNX model: .*export it again"):
        model(tmp_path)


def test_the_missing_extra_is_named(tmp_path, monkeypatch):
    weights = PairWeights.of_folder(write(tmp_path, WORDS))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        DataError, match=r"a model of pairs needs .*" + re.escape(how_to_install("rag"))
    ):
        PairModel(weights)


def test_a_cross_encoder_orders_what_was_found(tmp_path):
    reranker = CrossEncoder(write(tmp_path, WORDS))
    assert reranker.scores("a", ["wing lifts", "wing", ""]).tolist() == [6.0, 3.0, 1.0]
    passages = whole("wing", "wing wing wing lifts", "a wing wing")
    searcher = Searcher(passages, rerankers={"cross-encoder": reranker})
    found = searcher.search("wing", SearchSettings("bm25", rerank="cross-encoder"))
    assert [hit.position for hit in found.hits] == [1, 2, 0]
    assert [hit.score for hit in found.hits] == [11.0, 7.0, 4.0]


def test_a_model_of_several_outputs_is_no_cross_encoder(tmp_path):
    with pytest.raises(DataError, match="has 2 outputs; a cross-encoder must have one"):
        CrossEncoder(write(tmp_path, WORDS, signs=(1, -1)))


def test_without_weights_it_says_where_they_belong(tmp_path, monkeypatch):
    monkeypatch.setenv("STEERSMAN_HOME", str(tmp_path))
    with pytest.raises(
        DataError, match=r"no usable model in .*models/cross-encoder: .*optimum-cli"
    ):
        CrossEncoder()
