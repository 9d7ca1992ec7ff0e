"""Several processes embed as one does, in order, whatever becomes of them."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.embedding_pool import EmbeddingWorkers, usual_workers
from tests.retrieval.hashed_words import HashedWords

HASHED = "tests.retrieval.hashed_words:HashedWords"
SLOW = "tests.retrieval.slow_words:SlowWords"
TEXTS = [f"text number {number} of many" for number in range(100)]


@pytest.fixture(autouse=True)
def _findable(monkeypatch):
    """Let processes find the tests' modules."""
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))


@pytest.fixture
def workers():
    """Two processes, slow enough that neither has embedded all before the other begins."""
    with EmbeddingWorkers(SLOW, {"seconds": 0.05}, workers=2) as made:
        yield made


@pytest.mark.slow
def test_they_give_what_one_embedder_gives_in_order(workers):
    alone = HashedWords()
    assert (workers.name, workers.size) == (alone.name, alone.size)
    np.testing.assert_array_equal(workers.encode(TEXTS), alone.encode(TEXTS))
    assert len(workers.processes) == 2
    assert workers.encode([]).shape == (0, 32)
    np.testing.assert_array_equal(workers.encode(["", "ä 🔧"]), alone.encode(["", "ä 🔧"]))
    big = ["word " * 100_000] * 3  # more than a pipe holds
    np.testing.assert_array_equal(workers.encode(big), alone.encode(big))


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(workers):
    before = workers.encode(TEXTS)
    for process in workers.processes:
        os.kill(process, signal.SIGKILL)
    np.testing.assert_array_equal(workers.encode(TEXTS), before)
    assert workers.deaths == 2


@pytest.mark.slow
def test_a_worker_killed_while_it_embeds_costs_nothing_but_time():
    with EmbeddingWorkers(SLOW, {"seconds": 0.2}, workers=2) as workers:
        workers.encode(TEXTS[:32])
        victim = workers.processes[0]
        killer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
        killer.start()
        found = workers.encode(TEXTS)
        killer.join()
        assert workers.deaths == 1
    np.testing.assert_array_equal(found, HashedWords().encode(TEXTS))


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced():
    with EmbeddingWorkers(HASHED) as workers:
        workers.encode(["a"])
        os.kill(workers.processes[0], signal.SIGSTOP)
        workers._workers[0]._timeout_s = 0.5
        np.testing.assert_array_equal(workers.encode(["a"]), HashedWords().encode(["a"]))
        assert workers.deaths == 1


@pytest.mark.slow
def test_texts_that_kill_every_worker_are_told():
    with EmbeddingWorkers(SLOW, {"dies_of": "poison"}) as workers:
        with pytest.raises(DataError, match="3 workers died or timed out on the same 1 texts"):
            workers.encode(["poison"])
        assert workers.deaths == 3
        assert workers.encode(["fine"]).shape == (1, 32)


def test_an_embedder_that_refuses_is_told_and_lives_on():
    with EmbeddingWorkers(SLOW, {"refuses": "bad"}) as workers:
        with pytest.raises(DataError, match="the embedder failed: no bad words"):
            workers.encode(["bad"])
        assert workers.deaths == 0
        assert workers.encode(["fine"]).shape == (1, 32)


@pytest.mark.slow
def test_what_cannot_be_made_is_told():
    with pytest.raises(DataError, match=r"cannot be created: .*absent"):
        EmbeddingWorkers("absent.module:Thing")
    with pytest.raises(DataError, match=r"cannot be created: .*bogus"):
        EmbeddingWorkers("tests.retrieval.hashed_words:HashedWords", {"bogus": 1})


@pytest.mark.nightly
@pytest.mark.slow
def test_the_model_is_the_same_in_every_process():
    pytest.importorskip("onnxruntime")
    try:
        alone = MiniLM()
    except DataError as missing:
        pytest.skip(str(missing))
    with EmbeddingWorkers(workers=2) as workers:
        assert (workers.name, workers.size) == (alone.name, alone.size)
        some = TEXTS[:20]
        np.testing.assert_array_equal(workers.encode(some), alone.encode(some))


@pytest.mark.slow
def test_half_of_a_surrogate_pair_is_told_and_no_row_is_another_texts(workers):
    texts = [*TEXTS[:20], "half of a \ud83d", *TEXTS[20:]]
    with pytest.raises(InputError, match=r"text 20, 'half of a \\ud83d', holds a lone"):
        workers.encode(texts)
    assert workers.encode(TEXTS).shape == (100, 32)


@pytest.mark.slow
def test_a_process_that_cannot_be_started_is_told_and_no_row_is_left_out(workers, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # for the second of them
    with pytest.raises(DataError, match="cannot start an embedding process for"):
        workers.encode(TEXTS)


MANY_FILES = """
import os, resource
import numpy as np
from steersman.retrieval.embedding_pool import EmbeddingWorkers
from tests.retrieval.hashed_words import HashedWords
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
texts = [f"text {number}" for number in range(100)]
with EmbeddingWorkers("tests.retrieval.hashed_words:HashedWords", workers=2) as workers:
    np.testing.assert_array_equal(workers.encode(texts), HashedWords().encode(texts))
    assert workers.deaths == 0
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_program_with_a_thousand_open_files_has_workers_too():
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
        pytest.skip("this machine allows fewer than 4,096 open files")
    command = [sys.executable, "-c", MANY_FILES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_worker_killed_while_it_starts_is_replaced_as_one_that_embeds(tmp_path):
    how = {"seconds": 0.05, "starts": str(tmp_path), "dies_at": 2}
    with EmbeddingWorkers(SLOW, how, workers=2) as workers:
        np.testing.assert_array_equal(workers.encode(TEXTS), HashedWords().encode(TEXTS))
        assert workers.deaths == 1


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 65}, {"timeout_s": 0}])
def test_numbers_out_of_range_are_told(options):
    with pytest.raises(InputError, match="allowed is"):
        EmbeddingWorkers(HASHED, **options)


def test_no_process_is_left():
    with EmbeddingWorkers(HASHED) as workers:
        (process,) = workers.processes
    assert workers.processes == []
    until = time.monotonic() + 5
    while Path(f"/proc/{process}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path(f"/proc/{process}").exists()


def test_small_machines_have_one(monkeypatch):
    for cores, count in ((1, 1), (2, 1), (4, 1), (8, 3), (64, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)))
        assert usual_workers() == count
