"""The pages of the benchmarks: one per benchmark, and a summary made from them."""

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as program
from benchmarks.pages import HEADLINES, Row, page_of, read_rows, summary
from benchmarks.report import Figure

FIGURES = [
    Figure("p | q", 1234.5, 1200.0, 1300.0, "ms", "<= 1,300", holds=True, peers={"a, b": 2000.0}),
    Figure("fails", 0.5, goal="> 1", holds=False, peers={"x": 1234.0, "y": 2.0}),
    Figure("plain", float("nan")),
]


def test_a_page_gives_back_the_rows_it_was_made_of():
    page = page_of("some", {"cores": 2, "system": "Linux"}, FIGURES)
    assert read_rows(page) == [Row.of(figure) for figure in FIGURES]
    assert page.splitlines()[0] == "# Benchmark: some"
    assert page.endswith("\nMachine: cores 2, system Linux\n")


def test_the_summary_counts_goals_and_lists_those_that_do_not_hold(tmp_path):
    (tmp_path / "some.md").write_text(page_of("some", {}, FIGURES))
    (tmp_path / "ope.md").write_text(page_of("ope", {}, FIGURES[:1]))
    text = summary(tmp_path, ("ope", "some", "absent"))
    assert "\n2 of 3 goals hold." in text
    missed = text.split("## Goals that do not hold")[1].split("##")[0]
    assert "| fails | 0.5 | > 1 | x 1,234 | [some](benchmarks/some.md) |" in missed
    assert "p \\| q" not in missed
    assert "| [some](benchmarks/some.md) | 3 | 2 | 1 |" in text
    assert "absent" not in text


def test_a_headline_shows_figure_goal_peer_and_verdict(tmp_path):
    one = HEADLINES[0]
    figure = Figure(one.figure, 9000.0, unit="1/s", goal=8000, holds=True, peers={"echo": 5e4})
    (tmp_path / f"{one.benchmark}.md").write_text(page_of(one.benchmark, {}, [figure]))
    link = f"[{one.benchmark}](benchmarks/{one.benchmark}.md)"
    row = f"| {one.what} | 9,000 1/s | 8000 | echo 50,000 | yes | {link} |"
    assert row in summary(tmp_path, (one.benchmark,)).splitlines()


@pytest.mark.parametrize("one", HEADLINES, ids=lambda one: one.what)
def test_every_headline_names_one_measured_figure(one):
    rows = read_rows((program.PAGES / f"{one.benchmark}.md").read_text(encoding="utf-8"))
    assert [row.figure for row in rows].count(one.figure) == 1


def test_the_committed_summary_is_made_from_the_committed_pages():
    assert program.PAGE.read_text(encoding="utf-8") == summary(program.PAGES, program.BENCHMARKS)


def test_every_committed_page_is_of_a_benchmark():
    assert {page.stem for page in program.PAGES.glob("*.md")} <= set(program.BENCHMARKS)


def test_one_benchmark_writes_its_page_and_the_summary(monkeypatch, tmp_path):
    monkeypatch.setattr(program, "PAGES", tmp_path)
    monkeypatch.setattr(program, "PAGE", tmp_path / "all" / "BENCHMARKS.md")
    program.PAGE.parent.mkdir()
    (tmp_path / "ope.md").write_text("kept\n")
    monkeypatch.setattr(program, "_run", lambda name, *_, **__: page_of(name, {}, FIGURES))
    assert CliRunner().invoke(program.main, ["--only", "rollout"]).exit_code == 0
    assert (tmp_path / "ope.md").read_text() == "kept\n"
    assert read_rows((tmp_path / "rollout.md").read_text())[1].holds == "NO"
    assert "[rollout](benchmarks/rollout.md)" in program.PAGE.read_text()


def test_a_short_run_leaves_the_pages_and_a_failure_exits_with_1(monkeypatch, tmp_path):
    monkeypatch.setattr(program, "PAGES", tmp_path)
    monkeypatch.setattr(program, "PAGE", tmp_path / "BENCHMARKS.md")
    monkeypatch.setattr(program, "_run", lambda name, *_, **__: None if name == "ope" else "x\n")
    ran = CliRunner().invoke(program.main, ["--only", "ope,rollout", "--quick"])
    assert ran.exit_code == 1
    assert "failed: ope" in ran.output
    assert list(tmp_path.iterdir()) == []
