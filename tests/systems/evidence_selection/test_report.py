"""What is told of an evaluation: a page, a log, cases; nothing wanted is left out silently."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install
from steersman_systems.evidence_selection.ablations import (
    SHAPINGS,
    AblationResult,
    RerankedTopK,
    ablations,
)
from steersman_systems.evidence_selection.baselines import Oracle, TopK
from steersman_systems.evidence_selection.case_studies import case_of, case_studies
from steersman_systems.evidence_selection.contenders import BASELINE, CLONE, LinearlyCloned
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.evaluate import Fixed, evaluate
from steersman_systems.evidence_selection.features import FEATURES
from steersman_systems.evidence_selection.form_trial import compare_forms, tabulate
from steersman_systems.evidence_selection.page import write_page
from steersman_systems.evidence_selection.pictures import found_by_policy
from steersman_systems.evidence_selection.report import ceilings, facts, figures, set_report
from steersman_systems.evidence_selection.run_log import EXPERIMENT, export_evaluation, write_log
from steersman_systems.evidence_selection.selectors import ScoredSelector
from steersman_systems.reports.mlflow_runs import Destination
from tests.systems.evidence_selection.bands import bands

FULL = Limits(picks=2, expanding="always", may_stop=False)


@pytest.fixture(scope="module")
def prepared():
    return bands(history=True)


@pytest.fixture(scope="module")
def evaluation(prepared):
    rules = Environment(FULL)
    taking_part = [
        Fixed(TopK("fused", rules)), LinearlyCloned("clone", FULL), Fixed(Oracle(rules)),
    ]  # fmt: skip
    absent = {"+BC+RAFT": "it was not trained <yet>"}
    return evaluate("bands", prepared.pools, taking_part, folds=3, absent=absent)


@pytest.fixture(scope="module")
def report(prepared, evaluation):
    table = tabulate(
        prepared.questions, prepared.collection, prepared.forms, groups=prepared.groups
    )
    forms = compare_forms(table, folds=2, orders=1)
    tried = [AblationResult("candidates", "K 20", CLONE, evaluation.mean("oracle", "all_gold")),
             AblationResult("learning", "+BC+RAFT", CLONE, None, why="absent")]  # fmt: skip
    return set_report(evaluation, left_out=7, ablated=tried, forms=forms, shown="oracle")


def test_the_page_holds_everything_and_needs_nothing_else(tmp_path, report):
    file = tmp_path / "pages" / "report.html"
    write_page(file, [report], {"sets": "bands, coral"}, missing=["coral: not there"])
    page = file.read_text(encoding="utf-8")
    for part in ("top-k, fused", "oracle", "coral: not there", "Missing", "Query forms: recall@5",
                 "+BC+RAFT did not take part:", "it was not trained &lt;yet&gt;", "not measured",
                 "7 passages of the collection were not searched", "recall@2",
                 "How many bridges", "search query: ", "Ablations"):  # fmt: skip
        assert part in page, part
    assert "<svg" in page or "No picture: matplotlib" in page
    # Names of a picture's namespaces are no addresses that anybody asks.
    for outside in ('href="http', "url(http", "<script", "src=", "@import"):
        assert outside not in page


def test_what_lines_mean_stands_below_the_axis_however_few_policies_there_are(report):
    agg = pytest.importorskip("matplotlib.backends.backend_agg", reason="the extra demo")
    figure = found_by_policy(report)
    agg.FigureCanvasAgg(figure).draw()
    (legend,), (axes,) = figure.legends, figure.axes
    assert len(report.means) == 3
    below = legend.get_window_extent().y1
    assert 0 < below <= axes.xaxis.label.get_window_extent().y0


def test_the_log_holds_every_selection_and_figure(tmp_path, evaluation, report):
    file = tmp_path / "logs" / "run.jsonl"
    write_log(file, {"seed": 0}, [evaluation], figures([report]))
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds[0] == "config"
    assert kinds.count("selection") == 3 * 6
    assert kinds.count("absent") == 1
    chosen = [one for one in lines if one["kind"] == "selection" and one["policy"] == "clone"]
    for one in chosen:
        assert len(one["picked"]) == len(one["steps"]) == 2
        assert math.prod(step["p"] for step in one["steps"]) == one["propensity"] == 1.0
        assert one["measures"]["all_gold"] in {0.0, 1.0}
    known = {one["name"]: one["value"] for one in lines if one["kind"] == "figure"}
    assert known["bands/oracle/all_gold"] == 1.0
    assert known[f"bands/oracle less {BASELINE}/all_gold"] == pytest.approx(
        1.0 - known[f"bands/{BASELINE}/all_gold"]
    )
    assert facts([report])["absent"]["bands"] == dict(evaluation.absent)


def test_what_is_not_known_is_null_with_the_reason(prepared):
    few = [replace(one, question=replace(one.question, gold=one.question.gold if n == 0 else ()))
           for n, one in enumerate(prepared.pools)]  # fmt: skip
    found = facts([set_report(evaluate("bands", few, [Fixed(TopK("fused"))], folds=2))])
    recall = found["figures"][f"bands/{BASELINE}/recall"]
    assert (recall["low"], recall["high"], recall["questions"]) == (None, None, 1)
    assert recall["why"] == "an interval takes two questions or conversations that have a value"
    none = [replace(one, question=replace(one.question, gold=())) for one in prepared.pools]
    found = facts([set_report(evaluate("bands", none, [Fixed(TopK("fused"))], folds=2))])
    assert found["ceiling"] == {"bands": None}
    assert found["unknown"] == {"ceiling of bands": "no question has gold passages"}
    json.dumps(found, allow_nan=False)


def test_nobody_picks_more_than_may_be_picked_with_links_or_without(prepared):
    """Three needed and two picks: all was retrieved, and yet nobody can pick it."""
    pools = [replace(one, question=replace(one.question, gold=gold)) for one, gold in zip(
        prepared.pools, (("b0", "b1", "b2"), ("b1", "b2"), ("b2", "t2"), (), (), ()), strict=True
    )]  # fmt: skip
    found = evaluate("bands", pools, [Fixed(TopK("fused", Environment(FULL)))], folds=2)
    assert ceilings(found) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert found.ceiling() == (pytest.approx(5 / 6), 1)


def test_a_clone_learns_to_follow_the_link(evaluation):
    assert evaluation.mean("clone", "all_gold").value > evaluation.mean(BASELINE, "all_gold").value


def test_cases_say_what_was_picked_why_and_what_was_missed(evaluation):
    found = case_studies(evaluation, BASELINE, "oracle", each=1)
    gained = next(one for one in found if one.kind == "gained")
    ranked, selected = gained.sides
    assert (ranked.policy, selected.policy) == (BASELINE, "oracle")
    assert len(ranked.missed) >= 1
    assert not selected.missed
    assert [one.gold for one in selected.picked] == [True, True]
    assert ranked.picked[0].why.startswith("fused ")
    assert gained.searched.startswith(gained.question)
    assert len(gained.searched) > len(gained.question), "of a conversation, words said before"


class ExpandsFirst:
    """A scorer that follows what it picked, and then takes the best by fused score."""

    def scores(self, rows):
        weights = {"fused": 1.0, "named_by_selected": 5.0, "is_expand": 10.0}
        return sum(weight * rows[:, FEATURES.index(name)] for name, weight in weights.items())


def test_reasons_stand_by_the_passage_that_they_spoke_for(prepared):
    chosen = ScoredSelector("follows", ExpandsFirst(), Environment(Limits(picks=2)))
    found = evaluate("bands", prepared.pools, [Fixed(chosen)], folds=2)
    selection = found.rows["follows"][0].selection
    assert [step.action for step in selection.steps] == ["b0", "expand", "t0"]
    assert "is_expand" in selection.why[1]
    (side,) = case_of(found, 0, ["follows"]).sides
    first, second = (one.why for one in side.picked)
    assert first.startswith("fused ")
    assert second.startswith("named by selected ")
    # Who logs no steps tells of picks alone.
    steady = Fixed(TopK("fused", Environment(Limits(picks=2))))
    (side,) = case_of(evaluate("bands", prepared.pools, [steady], folds=2), 0, [BASELINE]).sides
    assert all(one.why.startswith("fused ") for one in side.picked)


def test_what_cannot_be_written_is_told(tmp_path, report, evaluation):
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_page(tmp_path / "taken" / "x.html", [report], {}, missing=())
    with pytest.raises(DataError, match="cannot be written"):
        write_log(tmp_path / "taken" / "x.jsonl", {}, [evaluation], {})


class Backwards:
    """A reranker that likes short texts."""

    def scores(self, query, texts):
        return [-float(len(text)) for text in texts]


class Heard:
    """A reranker that notes what it is asked."""

    def __init__(self):
        self.asked = []

    def scores(self, query, texts):
        self.asked.append(query)
        return [0.0] * len(texts)


def test_a_reranker_orders_the_leading_candidates_alone(prepared):
    rules = Environment(Limits(picks=2, may_stop=False))
    chosen = RerankedTopK("short", Backwards(), rules, depth=3)
    pool = prepared.pools[0]
    picked = chosen.select(pool, rng=None).picked
    leading = sorted(pool.candidates[:3], key=lambda one: len(f"{one.title}\n{one.text}"))
    assert list(picked) == [one.id for one in leading[:2]]
    heard, said = Heard(), replace(pool, query=replace(pool.query, text="what was searched for"))
    RerankedTopK("heard", heard, rules).select(said, rng=None)
    assert heard.asked == ["what was searched for"], "of a conversation, more than the last turn"


def test_ablations_tell_what_could_not_be_tried(prepared, evaluation):
    pytest.importorskip("lightgbm", reason="the extra evidence")
    found = ablations(
        evaluation, prepared.collection, prepared.questions, limits=FULL, folds=3,
        rerankers={"short": Backwards(), "cross-encoder": "no model is there"},
    )  # fmt: skip
    by = {(one.part, one.variant): one for one in found}
    assert CLONE in by[("candidates", "K 20")].why
    assert by[("learning", "+BC+RAFT")].why == "it was not trained <yet>"
    assert len(SHAPINGS) == 4
    for name in SHAPINGS:
        assert "PPO" in by[("shaping of PPO", name)].why
    assert CLONE in by[("expanding", "never")].why
    assert by[("λ of MMR", "λ 0.2")].why == "it did not take part"
    assert by[("reranker of the baseline", "short")].figure.count == 6
    assert by[("reranker of the baseline", "cross-encoder")].why == "no model is there"


# In a process of its own: the library warns while it is imported, and warnings are errors here.
PROGRAM = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from steersman_systems.evidence_selection.paired import Estimate
from steersman_systems.evidence_selection.run_log import EXPERIMENT, export_evaluation
from steersman_systems.evidence_selection.selectors import ScoredSelector
from steersman_systems.reports.mlflow_runs import Destination
store = Path(sys.argv[1])
(store / "log.jsonl").write_text("{}")
to = Destination(store, EXPERIMENT, datetime.now(UTC), commit="9e1c3f0")
def exported(latency):
    figures = {
        "bands/+BC/recall@5": Estimate(0.5, 0.4, 0.6, 12),
        "bands/+BC/f1": Estimate(float("nan"), float("nan"), float("nan"), 0),
        "bands/+BC/latency_ms": Estimate(latency, 1.0, 2.0, 12),
    }
    one = export_evaluation(to, {"seed": 0}, figures, [store / "log.jsonl"])
    from mlflow.tracking import MlflowClient
    client = MlflowClient(tracking_uri=one.tracking_uri)
    run = client.get_run(one.run)
    return {
        "new": one.new, "run": one.run, "metrics": run.data.metrics, "parameters": run.data.params,
        "commit": run.data.tags["mlflow.source.git.commit"], "status": run.info.status,
        "artifacts": sorted(found.path for found in client.list_artifacts(one.run)),
    }
# Slower the second time, and found the same.
print(json.dumps([exported(1.5), exported(1.9)]))
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_mlflow_has_an_evaluation_once_with_its_intervals_and_files(tmp_path):
    pytest.importorskip("mlflow", exc_type=ImportError)

    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    first, again = json.loads(done.stdout.splitlines()[-1])
    assert first["metrics"].items() >= {
        "bands/_BC/recall_at_5": 0.5, "bands/_BC/recall_at_5/low": 0.4,
        "bands/_BC/recall_at_5/high": 0.6,
    }.items()  # fmt: skip
    assert "bands/_BC/f1" not in first["metrics"]
    assert (first["parameters"], first["commit"]) == ({"seed": "0"}, "9e1c3f0")
    assert (first["new"], first["status"]) == (True, "FINISHED")
    assert first["artifacts"] == ["commit.txt", "log.jsonl"]
    assert (again["new"], again["run"]) == (False, first["run"])


def test_a_missing_mlflow_is_named(tmp_path, monkeypatch, report):
    for name in ("mlflow", "mlflow.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    to = Destination(tmp_path, EXPERIMENT, datetime(2026, 11, 21, tzinfo=UTC))
    with pytest.raises(DataError, match=re.escape(how_to_install("mlflow"))):
        export_evaluation(to, {"seed": 0}, figures([report]), [])
