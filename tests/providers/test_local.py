"""A model in a process of its own: the same answer always, in time, and back after a crash."""

import os
import re
import signal
import sys
import threading
import time

import pytest

from steersman.errors import BackendAnswerError, BackendUnavailableError, DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.providers import local
from steersman.providers.backend import MeteredBackend
from steersman.providers.judges.judge import Judge, Retry
from steersman.providers.judges.scores import Tally
from steersman.providers.local import LocalBackend
from steersman.providers.small_models import CHATML, GEMMA3, local_model, reading_model
from steersman.providers.spending_limit import Budget, Prices

QUESTION = "What is the capital of France?"
FACT = "Tom was born in Bonn. Ann was born in Lund.\nQuestion: Where was Tom born?\nAnswer: Bonn"


@pytest.fixture(scope="module")
def backend():
    pytest.importorskip("xllamacpp")
    try:
        made = local_model(context_tokens=512)
    except DataError as missing:
        pytest.skip(str(missing))
    with made:
        yield made


@pytest.mark.slow
def test_a_prompt_has_one_answer_whatever_was_asked_before(backend):
    first = backend.completion(QUESTION, max_tokens=8)
    assert "Paris" in first.text
    assert first.prompt_tokens > 8
    assert 1 <= first.answer_tokens <= 8
    backend.complete(f"{QUESTION} And of Spain?", max_tokens=4)
    assert backend.completion(QUESTION, max_tokens=8) == first
    assert isinstance(backend, MeteredBackend)


@pytest.mark.slow
def test_too_long_a_prompt_is_refused_with_what_to_do(backend):
    with pytest.raises(BackendAnswerError, match=r"exceeds the available .*shorten"):
        backend.complete("word " * 600, max_tokens=4)
    assert "Paris" in backend.complete(QUESTION, max_tokens=8)


@pytest.mark.slow
def test_time_is_kept_and_the_next_prompt_has_a_new_process(backend):
    begun = time.monotonic()
    with pytest.raises(BackendUnavailableError, match=r"no answer within 0\.2 s"):
        backend.complete("Tell a long story. " * 30, max_tokens=300, timeout_s=0.2)
    assert time.monotonic() - begun < 5.0
    assert "Paris" in backend.complete(QUESTION, max_tokens=8)


@pytest.mark.slow
def test_a_killed_process_is_told_and_replaced(backend):
    backend.complete(QUESTION, max_tokens=1)
    os.kill(backend._process._process.pid, signal.SIGKILL)
    with pytest.raises(BackendUnavailableError, match="the model process exited"):
        backend.complete(QUESTION, max_tokens=1)
    assert "Paris" in backend.complete(QUESTION, max_tokens=8)


@pytest.mark.slow
def test_threads_take_turns_and_waiting_counts(backend):
    told = []

    def ask():
        told.append(backend.complete(QUESTION, max_tokens=8))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 3
    assert len(set(told)) == 1
    with backend._turn, pytest.raises(BackendUnavailableError, match="other prompts"):
        backend.complete(QUESTION, max_tokens=1, timeout_s=0.05)


@pytest.mark.slow
def test_a_judge_can_ask_it_and_counts_its_tokens(backend):
    judge, tally = (
        Judge(backend, retry=Retry(tries=1), budget=Budget(prices=Prices(1.0, 1.0))),
        Tally(),
    )
    assert "Paris" in judge.ask(QUESTION, max_tokens=8, version="1", tally=tally)
    assert tally.calls == 1
    assert 0.0 < judge.budget.cost_usd < 0.1


@pytest.mark.slow
def test_its_name_tells_weights_template_and_context(backend):
    runtime, file, digest, context = backend.name.split("#")
    assert runtime.startswith("llama.cpp/")
    assert file == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert (len(digest), context) == (16, "512")
    with LocalBackend(backend._model, context_tokens=512) as other:
        assert other.name != backend.name
    assert "assistant" in CHATML


@pytest.mark.slow
def test_a_text_is_gone_on_with_until_the_line_ends(backend):
    text = "Capital of Spain: Madrid\nCapital of France:"
    with local_model(context_tokens=512, chats=False) as ending:
        assert ending.complete(text, max_tokens=8).strip() == "Paris"
        assert ending.name != backend.name


@pytest.mark.slow
def test_the_reading_model_answers_in_a_line():
    pytest.importorskip("xllamacpp")
    missing = [one.filename for one in GEMMA3 if not one.path().exists()]
    if missing:  # not fetched by a test: its terms are for whoever wants it to agree to
        pytest.skip(f"{missing[0]} was not fetched")
    with reading_model(context_tokens=512) as made:
        assert made.complete(f"{FACT}\nQuestion: Where was Ann born?\nAnswer:").strip() == "Lund"


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"prompt": ""}, "0 characters"),
        ({"prompt": "x" * 200_001}, "200001 characters"),
        ({"prompt": "\ud800"}, "lone surrogate"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens is 0"),
        ({"prompt": "x", "timeout_s": float("nan")}, "timeout_s is nan"),
    ],
)
def test_arguments_out_of_range_are_refused(backend, given, match):
    with pytest.raises(InputError, match=match):
        backend.complete(**given)


def test_a_missing_or_foreign_file_is_told(tmp_path):
    with pytest.raises(DataError, match="cannot be read: No such file"):
        LocalBackend(tmp_path / "none.gguf")
    (tmp_path / "notes.gguf").write_text("# Notes")
    with pytest.raises(DataError, match="is not a GGUF file"):
        LocalBackend(tmp_path / "notes.gguf")
    with pytest.raises(InputError, match="context_tokens is 1"):
        LocalBackend(tmp_path / "none.gguf", context_tokens=1)


@pytest.mark.slow
def test_damaged_weights_are_told(tmp_path):
    pytest.importorskip("xllamacpp")
    (tmp_path / "half.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(100))
    with pytest.raises(DataError, match=r"llama.cpp cannot run .*half\.gguf"):
        LocalBackend(tmp_path / "half.gguf")


@pytest.mark.slow
def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    # A module of that name that cannot be imported stands first on the child's path.
    (tmp_path / "xllamacpp.py").write_text("raise ModuleNotFoundError('No module xllamacpp')")
    (tmp_path / "some.gguf").write_bytes(b"GGUF\x03\0\0\0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with pytest.raises(DataError, match=re.escape(how_to_install("local"))):
        LocalBackend(tmp_path / "some.gguf")


@pytest.mark.slow
def test_a_model_that_is_not_loaded_in_time_is_told_and_its_process_ended(tmp_path, monkeypatch):
    # What stands first on the child's path tells who it is, and then takes for ever.
    (tmp_path / "xllamacpp.py").write_text(
        "import os, pathlib, time\n"
        "pathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    (tmp_path / "some.gguf").write_bytes(b"GGUF\x03\0\0\0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setattr(local, "_START_S", 2.0)
    with pytest.raises(DataError, match=r"some\.gguf was not loaded within 2 s"):
        LocalBackend(tmp_path / "some.gguf")
    if (tmp_path / "pid").exists():  # a machine that is slow enough has not come so far
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)
