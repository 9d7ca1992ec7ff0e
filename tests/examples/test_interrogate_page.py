"""The console commands of docs/how-to/interrogate.md, run in order in a shell."""

import json
from pathlib import Path

import pytest

from steersman.errors import DataError
from steersman.platform.wheel_files import state_directory
from steersman.retrieval.dense import MiniLM
from tests.examples.pages import commands, environment, type_in

PAGE = Path("docs/how-to/interrogate.md")


@pytest.mark.slow
def test_every_command_of_the_page_works(tmp_path):
    pytest.importorskip("onnxruntime")
    try:
        MiniLM()
    except DataError as missing:
        pytest.skip(str(missing))
    ours = environment(state_directory())
    typed = [command for command in commands(PAGE) if not command.startswith("pip ")]
    said = "\n".join(type_in(command, ours, tmp_path) for command in typed)
    assert " ".join(said.split()).count("texts embedded") == 2
    assert "heuristic" in said
    told = json.loads((tmp_path / "unknown.json").read_text(encoding="utf-8"))
    assert told["investigation"]["target"] == "unknown.npy"
    assert len(typed) == 3
