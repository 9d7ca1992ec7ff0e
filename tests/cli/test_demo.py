"""The demo command, as a person runs it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.cli.charts import smoothed, terminal_chart, write_png


def test_explaining_one_request_tells_every_decision(tmp_path):
    file = tmp_path / "one.json"
    ran = CliRunner().invoke(main, ["demo", "assistant", "--explain", "12", "--json", str(file)])
    assert ran.exit_code == 0, ran.output
    told = json.loads(file.read_text())
    assert told["request"] == 12
    for decision in told["decisions"]:
        assert decision["chosen"] in ran.output
        assert 0.0 < decision["propensity"] <= 1.0


@pytest.mark.parametrize("number", ["0", "1000000", "x"])
def test_a_request_that_is_not_there_is_bad_usage(number):
    ran = CliRunner().invoke(main, ["demo", "assistant", "--explain", number])
    assert ran.exit_code == 2
    assert "--explain" in ran.output


@pytest.mark.slow
def test_the_whole_demo_prints_and_writes_its_report(tmp_path):
    file = tmp_path / "report.json"
    arguments = ["demo", "assistant", "--orders", "2", "--json", str(file), "--out", str(tmp_path)]
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 0, ran.output
    report = json.loads(file.read_text())
    assert report["orders"] == 2
    assert (tmp_path / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    for words in ("learned over the best fixed choice", "needed for the first time", "refused for"):
        assert words in ran.output
    assert {row["worth"] for row in report["sweep"]} == {0.5, 0.7}


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
