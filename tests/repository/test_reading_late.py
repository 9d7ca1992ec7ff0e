"""A run over several processes, each of which reads only the files whose tests it runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
_CONFTEST = """
from tools import read_late

def pytest_configure(config):
    read_late.register(config)
"""
_SOUND = {
    "a/test_good.py": "def test_a(): pass\n\ndef test_b(): pass\n",
    # Examples are looked for, and there are none: what the file before left goes all the same.
    "a/test_none.py": "TEXT = '>>> none of ours'\n",
    "b/test_bad.py": "def test_a(): assert 0\n\ndef test_b(): pass\n",
    "b/test_examples.py": "'''\n>>> 2 + 2\n4\n'''\n",
    "c/test_marked.py": "import pytest\n\n@pytest.mark.slow\ndef test_a(): pass\n",
}


@pytest.fixture
def run(tmp_path):
    """Run the tests of these files, and return the exit status, and what was told of how many."""

    def run(files, *options, processes=2):
        for name, text in {"conftest.py": _CONFTEST, **files}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
        asked = [
            "--import-mode=importlib",
            "--doctest-modules",
            "-p",
            "no:cacheprovider",
            "-p",
            "xdist",
        ]
        asked += ["-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder", *options]
        told = subprocess.run(
            [sys.executable, "-m", "pytest", *asked],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        last = told.stdout.strip().splitlines()[-1]
        counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", last)}
        return told.returncode, counts, told.stdout

    return run


def test_each_test_is_run_once(run):
    status, counts, told = run(_SOUND, processes=1)
    assert (status, counts) == (1, {"passed": 5, "failed": 1}), told
    assert "b/test_bad.py::test_a" in told


def test_a_file_that_cannot_be_read_fails_the_run_and_no_other(run):
    files = _SOUND | {"a/test_broken.py": "import no_such_module\n"}
    status, counts, told = run(files)
    assert (status, counts) == (1, {"passed": 5, "failed": 1, "error": 1}), told
    assert "no_such_module" in told


def test_what_is_wanted_is_looked_at_in_every_file(run):
    status, counts, told = run(_SOUND, "-m", "slow")
    assert (status, counts) == (0, {"passed": 1}), told
    status, counts, told = run(_SOUND, "-k", "good")
    assert (status, counts) == (0, {"passed": 2}), told


def test_one_test_can_be_named(run):
    status, counts, told = run(_SOUND, "b/test_bad.py::test_b")
    assert (status, counts) == (0, {"passed": 1}), told


def test_a_process_that_dies_is_told_and_another_runs_what_is_left(run):
    dies = """
import os
from pathlib import Path

def test_a():
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), 9)
"""
    # The one started in its place has a single file left, and must not wait for a second.
    files = {"test_first.py": "# mark.slow: begins\ndef test_a(): pass\n", "test_dies.py": dies}
    status, counts, told = run(files, processes=1)
    assert (status, counts) == (1, {"passed": 2, "failed": 1}), told
    assert "crashed while running 'test_dies.py" in told


def test_two_processes_that_die_at_once_are_both_replaced(run):
    dies = """
import os
import time
from pathlib import Path

def test_a():
    own = Path(__file__).with_suffix(".died")
    if not own.exists():
        own.touch()
        while len(list(own.parent.glob("*.died"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
"""
    slow = """
import os
import time

def pytest_collection():  # those begun in their place list files, one after the other
    time.sleep({"gw2": 1, "gw3": 3}.get(os.environ.get("PYTEST_XDIST_WORKER"), 0))
"""
    files = {"conftest.py": _CONFTEST + slow}
    files |= {f"test_dies_{n}.py": f"# mark.slow: begins\n{dies}" for n in range(2)}
    files |= {f"test_{n}.py": "def test_a(): pass\n" for n in range(4)}
    status, counts, told = run(files)
    assert (status, counts) == (1, {"passed": 6, "failed": 2}), told  # each ran again
