"""The committed recording is whole, small, and what the engines say today."""

import dataclasses
import io
import itertools
import json
import time
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.errors import DataError
from steersman.retrieval.bm25 import Bm25
from steersman_systems.assistant import requests
from steersman_systems.assistant.engines import Engines, shortlisted
from steersman_systems.assistant.recorded_engines import ARRAYS, PROVENANCE, Recording, record
from steersman_systems.assistant.requests import WHEEL, Catalogue
from steersman_systems.assistant.world import World


@pytest.fixture(scope="module")
def recording():
    return Recording.load()


def test_the_recording_is_small_and_says_where_it_came_from():
    about = json.loads(PROVENANCE.read_text())
    assert ARRAYS.stat().st_size < 4_000_000
    assert about["made_by"] == "steersman data record assistant"
    assert {"wheel": WHEEL.filename, "sha256": WHEEL.sha256, "licence": "Apache-2.0"} in (
        about["sources"]
    )


def test_the_recording_reaches_what_was_measured(recording):
    figures = recording.figures()
    assert figures["bm25"] == pytest.approx(0.571, abs=0.01)
    assert figures["dense"] == pytest.approx(0.639, abs=0.01)
    assert figures["fused"] == pytest.approx(0.686, abs=0.01)
    assert figures["shortlist"] == pytest.approx(0.959, abs=0.005)
    stated = json.loads(PROVENANCE.read_text())["right_tool"]
    assert {name: round(value, 4) for name, value in figures.items()} == stated


def test_shortlists_name_different_tools_best_first(recording):
    for row, bm25 in zip(recording.shortlist, recording.bm25, strict=True):
        listed = row[row >= 0]
        assert 10 <= len(listed) <= 20
        assert len(set(listed.tolist())) == len(listed)
        assert (row[len(listed) :] == -1).all()
        assert (np.diff(bm25[:10]) <= 0).all()


def test_embeddings_are_unit_vectors_that_give_the_recorded_cosines(recording):
    for embeddings in (recording.request_embedding, recording.tool_embedding):
        lengths = np.linalg.norm(embeddings.astype(np.float64), axis=1)
        np.testing.assert_allclose(lengths, 1.0, atol=2e-3)
    tools = recording.tool_embedding.astype(np.float64)[recording.shortlist]
    cosines = np.einsum("nkd,nd->nk", tools, recording.request_embedding.astype(np.float64))
    listed = recording.shortlist >= 0
    np.testing.assert_allclose(cosines[listed], recording.dense[listed], atol=2e-3)


@pytest.mark.slow
def test_bm25_scores_are_derived_again(world, recording):
    pytest.importorskip("bm25s")
    engine = Bm25([tool.text for tool in world.catalogue.tools])
    for request in np.random.default_rng(0).choice(len(world), 100, replace=False):
        scores = engine.scores(world.catalogue.requests[request].text)
        row = recording.shortlist[request]
        listed = row[row >= 0]
        recorded = recording.bm25[request, : len(listed)]
        np.testing.assert_allclose(scores[listed], recorded, rtol=1e-5, atol=1e-6)
        assert set(shortlisted(scores, scores)) == set(listed[:10].tolist())


@pytest.fixture(scope="module")
def few(world):
    """The first requests and tools, and the engines over these tools alone."""
    pytest.importorskip("onnxruntime")
    tools = world.catalogue.tools[:30]
    requests = [request for request in world.catalogue.requests[:16] if request.tool < len(tools)]
    catalogue = Catalogue(tuple(requests), tools)
    try:
        return catalogue, Engines(catalogue)
    except DataError as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
def test_embeddings_are_derived_again(few, recording):
    catalogue, engines = few
    again = record(catalogue, engines, clock=time.perf_counter)
    rows = [i for i, tool in enumerate(recording.truth[:16]) if tool < len(catalogue.tools)]
    for new, old in (
        (again.request_embedding, recording.request_embedding[rows]),
        (again.tool_embedding, recording.tool_embedding[: len(catalogue.tools)]),
    ):
        # 8-bit kernels differ a little between processors.
        assert np.einsum("nd,nd->n", new, old, dtype=np.float64).min() > 0.99


@pytest.mark.slow
def test_a_recording_of_any_catalogue_is_whole(few):
    catalogue, engines = few
    ticks = itertools.count()
    made = record(catalogue, engines, clock=lambda: float(next(ticks)))
    assert (made.latency_ms == 1000.0).all()
    assert World(catalogue, Recording.from_bytes(made.to_bytes())).shortlist(0).size >= 10
    assert Recording.from_bytes(made.to_bytes()).to_bytes() == made.to_bytes()
    assert made.figures()["shortlist"] > 0.9


@pytest.mark.slow
def test_the_command_records_and_its_files_load_again(few, tmp_path, monkeypatch):
    catalogue, _ = few
    monkeypatch.setattr(requests, "load_catalogue", lambda _home: catalogue)
    out = tmp_path / "new" / "few.npz"
    done = CliRunner().invoke(main, ["data", "record", "assistant", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    told, made = json.loads(done.stdout), Recording.load(out, out.with_suffix(".json"))
    assert told["bytes"] == out.stat().st_size
    assert told["requests"] == len(made.truth) == len(catalogue.requests)
    assert (told["file"], told["made_by"]) == (str(out), "steersman data record assistant")
    assert (made.latency_ms > 0.0).all()
    assert World(catalogue, made).shortlist(0).size >= 10


def small(**changes):
    rows = {
        "truth": np.zeros(2, np.int16),
        "shortlist": np.tile(np.r_[np.arange(10), np.full(10, -1)], (2, 1)).astype(np.int16),
        "bm25": np.zeros((2, 20), np.float32),
        "dense": np.zeros((2, 20), np.float32),
        "latency_ms": np.ones((2, 2), np.float32),
        "request_embedding": np.zeros((2, 4), np.float16),
        "tool_embedding": np.zeros((12, 4), np.float16),
    }
    return Recording(**{**rows, **changes})


def test_bytes_round_trip():
    again = Recording.from_bytes(small().to_bytes())
    for field in dataclasses.fields(Recording):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(small(), field.name))


def pickled():
    buffer = io.BytesIO()
    np.savez(buffer, truth=np.array([{"a": 1}], object))
    return buffer.getvalue()


def bomb():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("truth.npy", bytes(20_000_000))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda: small(bm25=np.zeros((2, 19), np.float32)).to_bytes(), "bm25 has shape"),
        (lambda: small(dense=np.full((2, 20), np.nan, np.float32)).to_bytes(), "dense has shape"),
        (lambda: small(latency_ms=np.ones((3, 2), np.float32)).to_bytes(), "latency_ms has shape"),
        (lambda: small(shortlist=np.full((2, 20), 12, np.int16)).to_bytes(), "tools outside"),
        (lambda: small(shortlist=np.full((2, 20), -2, np.int16)).to_bytes(), "tools outside"),
        (lambda: small(truth=np.zeros(0, np.int16)).to_bytes(), "has shape"),
        (pickled, "invalid recording"),
        (bomb, "allowed: up to 16000000"),
        (bytes, "invalid recording"),
        (lambda: b"not a zip", "invalid recording"),
    ],
)
def test_from_bytes_with_bad_content_is_refused(content, says):
    with pytest.raises(DataError, match=says):
        Recording.from_bytes(content())


def test_arrays_without_their_provenance_are_refused(tmp_path):
    arrays = tmp_path / "recording.npz"
    arrays.write_bytes(small().to_bytes())
    with pytest.raises(DataError, match="is missing"):
        Recording.load(arrays, tmp_path / "recording.json")
    with pytest.raises(DataError, match="wrong sha256"):
        Recording.load(arrays, PROVENANCE)


def test_a_recording_of_other_requests_does_not_make_a_world(world):
    with pytest.raises(DataError, match="expected these 1311"):
        World(world.catalogue, small())


@pytest.mark.slow
def test_the_command_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    done = CliRunner().invoke(main, ["data", "fetch", "assistant", "--home", str(tmp_path)])
    assert done.exit_code == 1
    assert "go online" in done.output


def test_the_command_knows_its_systems():
    assert CliRunner().invoke(main, ["data", "fetch", "nobody"]).exit_code == 2


def test_fetch_prints_json(world):
    done = CliRunner().invoke(main, ["data", "fetch", "assistant", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.output)["tools"] == 729
