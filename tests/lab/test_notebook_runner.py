"""Notebooks are run in a fresh process, and what they show is compared with what they compute."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from lab import notebook_runner as notebooks


@pytest.fixture
def notebook(tmp_path):
    """Return a function that writes a notebook of some cells and returns its path."""

    def write(*sources):
        cells = [new_markdown_cell("# Title", id="title")]
        cells += [new_code_cell(source, id=f"c{i}") for i, source in enumerate(sources)]
        path = tmp_path / "a.ipynb"
        nbformat.write(new_notebook(cells=cells), path)
        return path

    return write


def test_cells_share_names_and_keep_what_they_print_and_what_they_are(notebook):
    path = notebook("x = 2\nprint('two')", "x + 1", "None")
    assert notebooks.main([str(path)]) == 0
    cells = notebooks.read(path).cells[1:]
    first, second, third = ([dict(output) for output in cell.outputs] for cell in cells)
    assert first == [{"output_type": "stream", "name": "stdout", "text": "two\n"}]
    assert second[0]["data"] == {"text/plain": "3"}
    assert third == []
    assert notebooks.main(["--check", str(path)]) == 0


def test_an_output_that_is_not_computed_any_more_is_found(notebook, capsys):
    path = notebook("print('about', 1 / 4)")
    assert notebooks.main([str(path)]) == 0
    path.write_text(path.read_text().replace("0.25", "0.26"))
    assert notebooks.main(["--check", str(path)]) == 1
    assert "cell 1 shows\nabout 0.26\n\nand computes\nabout 0.25" in capsys.readouterr().out


def test_an_output_that_is_missing_is_found(notebook):
    assert notebooks.main(["--check", str(notebook("1 + 1"))]) == 1


@pytest.mark.parametrize("source", ["1 / 0", "import warnings\nwarnings.warn('old')", "a ="])
def test_a_cell_that_fails_is_named_and_nothing_is_written(notebook, capsys, source):
    path = notebook("x = 1", source)
    before = path.read_bytes()
    assert notebooks.main([str(path)]) == 1
    assert "<cell 2>" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_each_run_is_a_fresh_process(notebook):
    path = notebook("import sys\nsys.seen = getattr(sys, 'seen', 0) + 1\nsys.seen")
    assert [notebooks.main([str(path)]) for _ in range(2)] == [0, 0]
    assert notebooks.read(path).cells[1].outputs[0]["data"] == {"text/plain": "1"}


@pytest.mark.slow
def test_equal_pictures_are_equal_files(notebook):
    pytest.importorskip("matplotlib")
    drawn = "from matplotlib.figure import Figure\nf = Figure((1, 1))\nf.subplots().plot([1])\nf"
    path = notebook(drawn)
    assert notebooks.main([str(path)]) == 0
    once = path.read_bytes()
    assert notebooks.main([str(path)]) == 0
    assert path.read_bytes() == once


@pytest.mark.parametrize(
    ("stored", "computed", "same"),
    [
        ("worth 1,203.4", "worth 1,204.9", True),
        ("worth 1,203.4", "worth 1,213.4", False),
        ("−0.250 [−0.3, 1]", "−0.251 [−0.3, 1]", True),
        ("−0.250", "0.250", False),
        ("mean 1", "mode 1", False),
        ("1 2", "1", False),
    ],
)
def test_numbers_may_differ_a_little_and_words_may_not(stored, computed, same):
    assert notebooks.alike(stored, computed) is same
