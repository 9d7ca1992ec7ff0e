"""The report of a run: what it says, and that the page is whole and the same each time."""

import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from steersman_systems.rag_tuner.ablation import ablations
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.frontier import rising
from steersman_systems.rag_tuner.latencies import Latencies
from steersman_systems.rag_tuner.loop import tune
from steersman_systems.rag_tuner.page import facts, write_page
from steersman_systems.rag_tuner.pictures import episodes, frontier, shares, write_png
from steersman_systems.rag_tuner.report import compile_report
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.run_folder import RunFolder
from steersman_systems.rag_tuner.slices import rotating, stratified
from steersman_systems.rag_tuner.strategies.random import Random
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, TUNED = world(queries=80), tuned()
RRF = Configuration("rrf")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    recorded = world(queries=80, seed=1)
    keys = [*recorded.keys]
    assert ("rrf", False, 0.5, False) in keys
    run = RunFolder(tmp_path_factory.mktemp("run") / "run")
    run.begin({"seed": 0}, "policy: 1\n")
    split = stratified(recorded.categories, np.random.default_rng(0))
    slices = rotating(split.tuning, 16, np.random.default_rng(0))
    strategy = Random(TUNED)
    for one in tune(strategy, recorded, TUNED, slices, evaluations=12, seed=0):
        run.append(one)
    return compile_report(
        recorded, TUNED, held_out=split.held_out, candidate=strategy.recommend(), baseline=RRF,
        lines=run.episodes(),
    )  # fmt: skip


@pytest.mark.slow
def test_everything_marked_has_its_place(report):
    known = {one.configuration for one in report.places}
    assert set(report.marked.values()) <= known
    assert len(known) == len(TUNED.space.all) + 1  # and ranks fused
    assert report.verdict.candidate == report.marked["tuned"]
    assert facts(report)["verdict"] == report.verdict.state


@pytest.mark.slow
def test_the_page_is_whole_and_the_same_each_time(report, tmp_path):
    for name in ("a.html", "deep/b.html"):
        write_page(tmp_path / name, report)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "deep" / "b.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    assert str(report.verdict).split(":")[0] in page
    assert not re.search(r'(src|href)="https?:', page)  # it needs nothing else


@pytest.mark.slow
def test_what_is_on_the_line_is_numbered_in_the_picture_and_told_in_the_table(report, tmp_path):
    line = rising(report.places)
    assert 1 < len(line) < 40
    write_page(tmp_path / "a.html", report)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    table = page.partition("<h2>Frontier</h2>")[2].partition("</table>")[0]
    for number, one in enumerate(line, 1):
        assert f"<td>{number}</td><td>{one.configuration}</td><td>{one.quality:.3f}</td>" in table
    assert table.count("<tr>") == len(line) + 1
    drawn = frontier(report.places, report.marked, "title").axes[0].texts
    assert [one.get_text() for one in drawn] == [str(n) for n in range(1, len(line) + 1)]


def test_where_bounds_are_narrow_those_are_marked_that_were_recorded():
    recorded = world(queries=40)
    few = replace(recorded, gains=recorded.gains[:, :, :8])
    bounds = TUNED.bounds.model_copy(
        update={"k": TUNED.bounds.k.model_copy(update={"min": 7, "max": 8})}
    )
    narrow = TUNED.model_copy(update={"bounds": bounds})
    told = compile_report(
        few, narrow, held_out=np.arange(20), candidate=Configuration("dense", k=8),
        baseline=Configuration("bm25", k=8), lines=[],
    )  # fmt: skip
    assert list(told.marked) == ["tuned", "serves today"]  # and none with ten passages


def test_an_evaluation_without_a_reward_is_a_gap_and_no_warning():
    parts = Configuration("bm25", k=5).parts()
    lines = [{"configuration": parts, "reward": None, "breaches": ["faithfulness"]}]
    assert [one.get_text() for one in shares(lines).axes[0].texts] == ["no reward"]
    assert np.isnan(episodes(lines).axes[0].lines[1].get_ydata()).all()


@pytest.mark.slow
def test_latency_is_told_by_episode_over_the_baseline_and_of_a_canary(report, tmp_path):
    told = facts(report)
    assert [len(told["latency"][name]) for name in ("p50_ms", "baseline_p95_ms")] == [12, 12]
    assert told["canary"] is None
    assert "was not checked" in told["leakage"]
    canary = Latencies.of([([10.0] * 10, [5.0] * 90), ([11.0] * 4, [])])
    told = facts(replace(report, canary=canary))
    assert told["canary"]["p50_ms"] == [10.0, 11.0]
    assert told["canary"]["baseline_p95_ms"] == [5.0, None]
    write_page(tmp_path / "c.html", replace(report, canary=canary))
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 5
    assert "under the canary, and under the baseline at the same time" in page
    assert "was not checked" in page


@pytest.mark.slow
def test_the_picture_is_a_png(report, tmp_path):
    file = tmp_path / "deep" / "frontier.png"
    write_png(frontier(report.places, report.marked, "title"), file)
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_what_each_part_is_good_for_is_the_best_of_the_rest():
    queries = np.arange(80)
    found = {one.without: one for one in ablations(WORLD, TUNED, queries)}
    rewards = {
        one: reward_of(WORLD.evaluate(one, queries), TUNED).per_query.mean()
        for one in TUNED.space.all
    }
    best = max(rewards.values())
    without = max(value for one, value in rewards.items() if not one.expansion)
    assert found["expansion"].loss == pytest.approx(best - without)
    assert found["expansion"].low < found["expansion"].loss < found["expansion"].high
    assert found["reranking"].loss == pytest.approx(0.0, abs=1e-9)  # it only costs here
    assert all(one.loss >= -1e-12 for one in found.values())
    coarse = found["a fine fusion weight (0, .25, .5, .75, 1)"]
    assert coarse.best.fusion_weight in {0.0, 0.25, 0.5, 0.75, 1.0}
