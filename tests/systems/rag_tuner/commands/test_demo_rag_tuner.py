"""``steersman demo rag-tuner`` on the catalogue of tools."""

import json
import re

import pytest
from click.testing import CliRunner

pytest.importorskip("bm25s")
pytest.importorskip("matplotlib")

from steersman.cli import main
from steersman.errors import DataError
from steersman_systems.assistant.requests import load_catalogue


@pytest.mark.slow
def test_it_ends_with_a_picture_a_page_and_a_plain_verdict(tmp_path):
    try:
        load_catalogue()
    except DataError as missing:
        pytest.skip(str(missing))
    asked = ["demo", "rag-tuner", "--questions", "60", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(
        main, [*asked, "--json", str(tmp_path / "a.json")], env={"STEERSMAN_DATA": None}
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["tools"]
    assert found["verdict"] in {"gain", "no gain", "loss", "breach"}
    assert found["says"].split(":")[0] in done.output
    said = " ".join(done.output.split())
    assert "reward = 1 quality − 0.2 latency − 0.2 cost" in said
    aim = "halve the confidence interval|show a gain of this size"
    assert re.search(rf"To ({aim}), use [1-9][\d,]* judged queries", said)
    assert re.search(r"Both configurations then take about [\d,]+ s of search time", said)
    folder = tmp_path / "out" / "tools"
    assert (folder / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "report.html").read_text(encoding="utf-8")
    (run,) = folder.glob("run-*")
    assert len((run / "episodes.jsonl").read_text(encoding="utf-8").splitlines()) == 80
