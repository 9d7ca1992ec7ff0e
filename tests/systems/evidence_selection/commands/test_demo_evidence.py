"""``steersman demo evidence`` on a fresh machine, and over a set on disk."""

import json

import pytest
from click.testing import CliRunner

pytest.importorskip("bm25s", reason="the extra demo")

from steersman.cli import main
from steersman.errors import DataError
from steersman_systems.evidence_selection.demo_set import load_two_tools


@pytest.fixture(scope="module")
def tools():
    try:
        return load_two_tools()
    except DataError as missing:
        pytest.skip(str(missing))


def test_requests_that_need_two_tools_are_a_set(tools):
    assert (len(tools.questions), len(tools.passages)) == (207, 1186)
    assert all(2 <= len(one.gold) <= 5 for one in tools.questions)
    assert not tools.unfindable
    assert len({one.doc_id for one in tools.passages}) == 1186


@pytest.mark.slow
def test_it_shows_both_side_by_side_and_says_what_selecting_brings(tools, tmp_path):
    out, told = tmp_path / "out", tmp_path / "told.json"
    asked = ["demo", "evidence", "--questions", "60", "--out", str(out), "--json", str(told)]
    done = CliRunner().invoke(main, asked, env={"STEERSMAN_DATA": None, "COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    found = json.loads(told.read_text(encoding="utf-8"))["tools"]
    assert found["learned"] == "clone, linear"
    for part in ("top-k, fused", "clone, linear", "oracle", "✓"):
        assert part in done.output, part
    said = " ".join(done.output.split())
    assert "learned selector minus best by rank: " in said
    assert "percentage points (95 % confidence interval" in said
    tops = [line for line in done.output.splitlines() if line.startswith("╭")]
    assert tops
    assert all("top-k, fused" in line and "clone, linear" in line for line in tops)
    assert max(map(len, tops)) <= 80
    page = (out / "tools" / "evidence.html").read_text(encoding="utf-8")
    assert "Cases, drawn at random" in page
    ahead = found["figures"]["tools/clone, linear less top-k, fused/all_gold"]
    assert ahead["low"] <= ahead["value"] <= ahead["high"]
