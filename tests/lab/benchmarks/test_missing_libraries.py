"""A benchmark without its optional libraries ends in one line that names the install command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.extras import advice

ROOT = Path(__file__).parents[3]
BLOCKER = """
import sys
from importlib.abc import MetaPathFinder

from benchmarks.extras import _COMMANDS


class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in _COMMANDS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""
# Each needs an optional library for its first figure; the others have figures without one.
PEERS = {
    "cache": "tools/install core bench",
    "evidence": "tools/install core rag",
    "evidence_answers": "tools/install core rag",
    "intents": "tools/install core bench",
    "learning": "tools/install core bench",
    "policies": "tools/install core bench",
    "retrieval": "tools/install core rag",
    "tuning": "tools/install core rag",
    "tuning_features": "tools/torch",
    "tuning_ppo": "tools/torch",
}
SETS = ("azure_llm_trace", "cranfield", "hotpotqa", "intents", "musique", "scifact")


def run(name, folder, *arguments):
    (folder / "sitecustomize.py").write_text(BLOCKER)
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{folder}:{ROOT}",
            "STEERSMAN_HOME": str(folder / "home"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_help_of_a_benchmark_without_peers_ends_without_a_traceback(name, tmp_path):
    ran = run(name, tmp_path, "--help")
    assert "Traceback" not in ran.stderr
    if ran.returncode == 0:
        assert "--quick" in ran.stdout
    else:
        assert ran.stderr.count("\n") == 1
        assert PEERS[name] in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PEERS))
def test_a_benchmark_without_peers_names_the_install_command(name, tmp_path):
    data = os.environ.get("STEERSMAN_DATA")
    if data is None or not all((Path(data) / one).is_dir() for one in SETS):
        if name not in {"policies", "tuning_features", "tuning_ppo"}:
            pytest.skip("STEERSMAN_DATA names no data sets")
        data = str(tmp_path)
    ran = run(name, tmp_path, "--quick", "--data", data)
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert PEERS[name] in ran.stderr.splitlines()[-1]


def test_the_cause_of_an_error_names_the_library():
    error = ValueError("PPO cannot run")
    error.__cause__ = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert advice(error) == "torch is not installed; install it with: tools/torch"


def test_an_import_that_is_wrong_in_the_project_gives_no_advice():
    assert advice(ImportError("cannot import name 'x'", name="steersman.ope")) is None
