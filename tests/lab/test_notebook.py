"""The notebook shows what it computes, what its prose says is so, and nothing of a machine."""

import ast
import copy
import re
from pathlib import Path

import pytest

from lab import notebook_runner as notebooks

NOTEBOOK = Path("lab/notebooks/offline_replay.ipynb")


@pytest.fixture(scope="module")
def stored():
    return notebooks.read(NOTEBOOK)


@pytest.fixture(scope="module")
def computed(stored):
    pytest.importorskip("matplotlib")
    return notebooks.run(stored, NOTEBOOK.parent)


@pytest.fixture(scope="module")
def figures(computed):
    """Return the key figures, the value of the last cell."""
    return ast.literal_eval(computed[-1][-1]["data"]["text/plain"])


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.slow
def test_it_runs_from_top_to_bottom_and_shows_what_it_computes(stored, computed):
    assert notebooks.differences(stored, computed) == []
    assert [cell.execution_count for cell in code(stored)] == list(range(1, len(computed) + 1))


@pytest.mark.slow
def test_another_figure_than_the_stored_one_is_found(stored, computed):
    changed = copy.deepcopy(stored)
    value = code(changed)[-1].outputs[-1]["data"]
    value["text/plain"] = re.sub(r"('dr': 0\.\d)", r"\g<1>9", value["text/plain"], count=1)
    (difference,) = notebooks.differences(changed, computed)
    assert difference.startswith(f"cell {len(computed)} shows")


@pytest.mark.slow
def test_what_its_prose_calls_evidence_is_so(figures):
    uniform, warm, heuristic = (figures[n] for n in ("uniform", "warm", "heuristic, all"))
    assert min(warm["low"], heuristic["low"]) > uniform["high"]
    # Of these two it says that there is no fair comparison: the heuristic's interval is wide.
    assert heuristic["high"] - heuristic["low"] > 2 * (warm["high"] - warm["low"])


@pytest.mark.slow
def test_it_refuses_where_it_says_so(figures):
    refused = {name for name, found in figures.items() if found.get("refused")}
    assert refused == {"heuristic", "warm, greedy"}
    assert all(figures[name]["worth"] < 100 for name in (*refused, "sessions"))
    assert all("dr" not in figures[name] for name in refused)


@pytest.mark.slow
def test_it_finds_the_truth_where_the_truth_is_known(figures):
    truth = figures["truth"]
    assert figures["uniform"]["dr"] == pytest.approx(truth["uniform"], abs=1e-4)
    assert truth["skewed, snips"] == pytest.approx(truth["uniform"], abs=0.002)
    assert truth["skewed, plain"] > truth["uniform"] + 0.01
    assert 0.92 <= truth["held"] <= 1.0


def test_it_holds_one_small_picture_and_nothing_of_a_machine(stored):
    pictures = [
        output["data"]["image/png"]
        for cell in code(stored)
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 1
    assert NOTEBOOK.stat().st_size < 150_000
    assert dict(stored.metadata.language_info) == {"name": "python"}
    assert all(cell.metadata == {} for cell in stored.cells)
    shown = NOTEBOOK.read_text().replace(pictures[0], "")
    assert not re.search(
        r"site-packages|\.py:\d|20\d\d-\d\d-\d\d|\d\d:\d\d:\d\d|0x[0-9a-f]{6}", shown
    )
