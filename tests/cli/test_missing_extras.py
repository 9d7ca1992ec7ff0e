"""A command without its optional library ends in one line that names the install command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ABSENT = (
    "Stemmer bm25s duckdb lightgbm matplotlib onnxruntime optuna plotille pyarrow tokenizers torch"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "library"),
    [
        ("demo assistant", "matplotlib"),
        ("demo rag-tuner", "matplotlib"),
        ("demo interrogator", "onnxruntime"),
        ("demo interrogator --html page.html", "matplotlib"),
        ("demo evidence", "matplotlib"),
        ("data record interrogator", "onnxruntime"),
    ],
)
def test_a_command_without_its_extra_names_the_install_command(call, library, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\n\nsys.modules.update(dict.fromkeys({ABSENT!r}.split()))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "steersman.cli", *call.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "STEERSMAN_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert library in last
    assert "pip install" in last
