"""The process of a local model ends with whoever started it, and starts beside many open files.

A library of that name that stands first on the child's path runs no model: what is tried here is
the process around it.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from steersman.errors import BackendAnswerError, BackendUnavailableError
from steersman.providers.local import LocalBackend

LIBRARY = """
import os, pathlib, time
from types import SimpleNamespace as Some
pathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))
__version__ = '0'
class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = Some(), Some(), Some()
class Server:
    def __init__(self, told):
        time.sleep(600 * os.path.exists(pathlib.Path(__file__).with_name('slow')))
    def handle_chat_completions(self, asked):
        said = asked['messages'][0]['content']
        if said == 'long':
            pathlib.Path(__file__).with_name('begun').touch()
            time.sleep(600)
        if said == 'refused':
            return {'error': {'code': 400, 'message': 'exceeds the context'}}
        if said == 'broken':
            raise ValueError('out of memory')
        return {'choices': [{'message': {'content': said}}]}
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "xllamacpp.py").write_text(LIBRARY)
    (tmp_path / "some.gguf").write_bytes(b"GGUF\x03\0\0\0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return tmp_path / "some.gguf"


def wait_for(happened, what):
    ends = time.monotonic() + 60.0
    while not happened():
        assert time.monotonic() < ends, what
        time.sleep(0.02)


def is_gone(process):
    """Whether a process has ended, be it that nobody has asked how yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextmanager
def files_allowed(most):
    """Let this process open so many files, and close those that were opened in the block."""
    before, opened = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield lambda: opened.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
def test_it_starts_and_answers_however_many_files_are_open(model):
    with files_allowed(1300) as open_one:
        for _ in range(1100):
            open_one()
        with LocalBackend(model) as backend:
            assert backend.complete("there", timeout_s=30.0) == "there"


@pytest.mark.slow
def test_a_process_that_cannot_be_started_is_an_error_of_the_backend(model):
    with LocalBackend(model) as backend:
        backend.close()
        with files_allowed(256) as open_one:
            with suppress(OSError):  # there are too many
                while True:
                    open_one()
            with pytest.raises(
                BackendUnavailableError, match="cannot start the model process"
            ) as caught:
                backend.complete("x", timeout_s=30.0)
        assert not caught.value.asked
        assert backend.complete("there", timeout_s=30.0) == "there"


@pytest.mark.slow
def test_broken_off_while_it_loads_it_leaves_no_process(model):
    (model.parent / "slow").touch()
    pid = model.parent / "pid"

    def broken_off(*_):
        raise KeyboardInterrupt

    def break_off():
        wait_for(lambda: pid.exists() and pid.read_text(), "the process never began")
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, broken_off)
    try:
        threading.Thread(target=break_off).start()
        with pytest.raises(KeyboardInterrupt):
            LocalBackend(model)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert is_gone(int(pid.read_text()))


@pytest.mark.slow
def test_what_the_model_does_not_take_is_told_from_what_went_wrong(model):
    with LocalBackend(model) as backend:
        with pytest.raises(BackendAnswerError, match="exceeds the context; shorten") as caught:
            backend.complete("refused", timeout_s=30.0)
        assert caught.value.of_prompt
        with pytest.raises(BackendAnswerError, match="out of memory") as caught:
            backend.complete("broken", timeout_s=30.0)
        assert not caught.value.of_prompt


@pytest.mark.slow
@pytest.mark.parametrize("during", ["slow", "begun"])
def test_it_ends_when_its_parent_is_killed_whatever_it_does_then(model, during):
    program = (
        "import sys; from pathlib import Path; from steersman.providers.local import LocalBackend; "
        "LocalBackend(Path(sys.argv[1])).complete('long', timeout_s=600)"
    )
    if during == "slow":
        (model.parent / "slow").touch()
    pid = model.parent / "pid"
    with subprocess.Popen([sys.executable, "-c", program, str(model)]) as parent:
        awaited = pid if during == "slow" else model.parent / "begun"
        wait_for(lambda: awaited.exists() and pid.read_text(), "the process never began")
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: is_gone(int(pid.read_text())), "the process outlived its parent")
