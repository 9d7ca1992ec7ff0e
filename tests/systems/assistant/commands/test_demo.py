"""The demo command, as a person runs it."""

import json
from contextlib import contextmanager

import numpy as np
import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.errors import StoreError
from steersman.errors.install_hint import how_to_install
from steersman_systems.assistant.trial import run_trials
from steersman_systems.reports.charts import smoothed, terminal_chart, write_png


def _explained(file, *options):
    arguments = ["demo", "assistant", "--explain", "12", "--json", str(file), *options]
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 0, ran.output
    told = json.loads(file.read_text())
    assert told["decisions"]
    for decision in told["decisions"]:
        assert decision["chosen"] in ran.output
        assert 0.0 < decision["propensity"] <= 1.0
    return told


@pytest.mark.slow
def test_the_service_explains_a_decision_from_the_state_it_was_drawn_from(tmp_path):
    told = _explained(tmp_path / "one.json")
    for decision in told["decisions"]:
        assert decision["recomputed_the_same"] is True
        assert 0.0 <= decision["u"] < 1.0


def test_explaining_one_request_tells_every_decision(tmp_path):
    told = _explained(tmp_path / "one.json", "--in-process")
    assert told["request"] == 12
    assert all(row["score"] is not None for d in told["decisions"] for row in d["actions"])


@pytest.mark.parametrize("number", ["0", "1000000", "x"])
def test_a_request_that_is_not_there_is_bad_usage(number):
    ran = CliRunner().invoke(main, ["demo", "assistant", "--explain", number])
    assert ran.exit_code == 2
    assert "--explain" in ran.output


def test_fewer_arrivals_than_requests_are_bad_usage():
    ran = CliRunner().invoke(main, ["demo", "assistant", "--arrivals", "1310"])
    assert ran.exit_code == 2
    assert "x>=1311" in ran.output


@pytest.mark.parametrize("demo", ["assistant", "rag-tuner", "evidence", "interrogator"])
def test_what_cannot_be_written_is_told_before_the_minutes_of_work(demo, tmp_path):
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file" / "x.json", "-", tmp_path):
        ran = CliRunner().invoke(main, ["demo", demo, "--json", str(wrong)])
        assert ran.exit_code in {1, 2}, ran.output
        assert isinstance(ran.exception, SystemExit)
        assert any(
            said in ran.output for said in ("cannot be written", "expected a file", "is a dir")
        )
    if demo != "interrogator":
        ran = CliRunner().invoke(main, ["demo", demo, "--out", str(tmp_path / "file" / "x")])
        assert "cannot be written" in ran.output


@pytest.mark.parametrize("demo", ["assistant", "rag-tuner", "evidence"])
def test_what_cannot_be_drawn_is_told_before_the_minutes_of_work(demo, tmp_path, monkeypatch):
    monkeypatch.setattr("steersman_systems.reports.charts.find_spec", lambda _: None)
    ran = CliRunner().invoke(main, ["demo", demo, "--out", str(tmp_path)])
    assert ran.exit_code == 1
    assert how_to_install("demo") in ran.output


@pytest.mark.parametrize("demo", ["rag-tuner", "evidence", "interrogator"])
@pytest.mark.parametrize("sets", ["", " , "])
def test_no_set_is_bad_usage(demo, sets, tmp_path):
    asked = ["demo", demo, "--data", str(tmp_path), "--sets", sets]
    assert CliRunner().invoke(main, asked).exit_code == 2


def _check_shipping(report):
    """What was learned was shipped in stages, and what is broken was taken back."""
    (rollout,) = report["rollouts"]
    assert rollout["status"] == "promoted"
    stages = [stage["name"] for stage in rollout["stages"]]
    assert stages == ["shadow", "canary", "ab", "ab", "live"]
    assert rollout["verdicts"][-1]["acted"] == "promoted"
    bad = report["bad_candidate"]
    assert bad["status"] == "rolled_back"
    assert bad["serving_snapshot_after"] == rollout["snapshot"]
    assert bad["requests_harmed"] >= bad["detected_after_units"] >= 50
    assert bad["rollout"]["verdicts"][-1]["verdict"] == "roll_back"


@pytest.mark.slow
def test_the_whole_demo_prints_and_writes_its_report(tmp_path):
    file = tmp_path / "report.json"
    arguments = ["demo", "assistant", "--orders", "2", "--sweep-orders", "1", "--arrivals", "1400"]
    arguments += ["--json", str(file), "--out", str(tmp_path)]
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 0, ran.output
    report = json.loads(file.read_text())
    assert report["orders"] == 2
    assert report["requests"] == 1400
    assert (tmp_path / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    said = " ".join(ran.output.split())
    for words in ("than the best fixed choice (95 % confidence interval", "first use of the tool",
                  "have no estimate", "Targets of requirement 004", "make up"):  # fmt: skip
        assert words in said
    assert "demo assistant --arrivals 1400 --explain" in said
    assert {row["worth"] for row in report["sweep"]} == {0.5, 0.7}
    gain = report["learned_minus_best_fixed"]
    assert gain["low"] < gain["same_tools"]["low"] < gain["same_tools"]["high"] < gain["high"]
    # The first order went through the real service: what it promised is there.
    assert report["acknowledged"] == report["stored"] > 6000
    assert report["service"]["processes"] == 2
    for figure in ("decide_ms", "learn_lag_ms"):
        assert 0.0 < report[figure]["p50"] <= report[figure]["p99"]
    assert report["service"]["updates_timed"] > 0.9 * report["service"]["updates"]
    assert abs(report["service"]["reward"] - report["service"]["in_process_reward"]) < 0.03
    _check_shipping(report)


@pytest.mark.slow
def test_a_service_that_fails_ends_what_is_replayed_beside_it(tmp_path, monkeypatch):
    @contextmanager
    def failing(*_, **__):
        raise StoreError("the service does not start")
        yield

    told = []
    orders = run_trials

    def counted(plans, *, done, **options):
        def one_more():
            told.append(1)
            done()

        return orders(plans, done=one_more, **options)

    monkeypatch.setattr("steersman_systems.assistant.demo.command.drive", failing)
    monkeypatch.setattr("steersman_systems.assistant.demo.command.run_trials", counted)
    ran = CliRunner().invoke(main, ["demo", "assistant", "--orders", "40", "--out", str(tmp_path)])
    assert ran.exit_code == 1
    assert "the service does not start" in ran.output
    assert len(told) < 2  # of forty and more
    assert not list(tmp_path.iterdir())


def test_charts_are_drawn(tmp_path):
    rng = np.random.default_rng(0)
    curves = {"learned": rng.random(500), "rules": rng.random(500)}
    text = terminal_chart(curves, width=80, colours=False)
    assert max(len(line) for line in text.splitlines()) <= 80
    write_png(curves, tmp_path / "deep" / "curve.png", title="two curves")
    assert (tmp_path / "deep" / "curve.png").stat().st_size > 5000


def test_smoothing_is_the_mean_of_the_last_rewards():
    places, means = smoothed(np.array([1.0, 0.0, 0.0, 1.0]), window=2)
    assert places.tolist() == [2.0, 3.0, 4.0]
    assert means.tolist() == [0.5, 0.0, 0.5]
    assert smoothed(np.array([1.0, 0.0]), window=9)[1].tolist() == [0.5]
