"""A benchmark's options, exit statuses and JSON are the same for all of them."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.machine import CoreTime, describe_machine, measure_bandwidth
from benchmarks.report import Figure, Options, command, load_figures, show_number
from steersman.errors import DataError, InputError

FIGURES = [
    Figure("speed", np.float64(2.5), 2.0, 3.0, "µs", "< 3", np.bool_(True), {"rival": 4.0}),
    Figure("unknown", math.nan),
]


def run_command(monkeypatch, arguments, run):
    monkeypatch.setattr("sys.argv", ["benchmark", *arguments])
    with pytest.raises(SystemExit) as stopped:
        command("speed", run)
    return stopped.value.code


def test_json_holds_the_machine_and_every_field_of_every_figure(monkeypatch, tmp_path, capsys):
    file = tmp_path / "new" / "figures.json"
    assert run_command(monkeypatch, ["--json", str(file)], lambda _: FIGURES) == 0
    document = json.loads(file.read_text())
    assert set(document) == {"machine", "figures"}
    assert document["machine"]["numpy"] == np.__version__
    assert document["figures"][0] == {
        "name": "speed",
        "value": 2.5,
        "low": 2.0,
        "high": 3.0,
        "unit": "µs",
        "goal": "< 3",
        "holds": True,
        "peers": {"rival": 4.0},
    }
    assert document["figures"][1]["value"] is None
    assert load_figures(file)[1][0] == FIGURES[0]
    assert "rival 4" in capsys.readouterr().out


def test_options_reach_the_benchmark(monkeypatch, tmp_path):
    seen = []
    arguments = ["--data", str(tmp_path), "--sets", "uci, obd", "--quick"]
    assert run_command(monkeypatch, arguments, lambda options: seen.append(options) or []) == 0
    assert seen == [Options(tmp_path, ("uci", "obd"), quick=True)]
    run_command(
        monkeypatch,
        ["--json", str(tmp_path / "a.json")],
        lambda options: seen.append(options) or [],
    )
    assert seen[1].page == tmp_path / "a.html"


def test_data_comes_from_the_environment_when_not_named(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setenv("STEERSMAN_DATA", str(tmp_path))
    run_command(monkeypatch, [], lambda options: seen.append(options.data) or [])
    assert seen == [tmp_path]


def test_missing_data_exit_with_1_and_say_where_they_live(monkeypatch, tmp_path, capsys):
    arguments = ["--data", str(tmp_path)]
    status = run_command(monkeypatch, arguments, lambda o: [o.folder("uci", "the UCI archive")])
    assert status == 1
    said = capsys.readouterr().err
    assert "'uci'" in said
    assert "the UCI archive" in said


def test_what_cannot_be_measured_exits_with_1_and_says_why(monkeypatch, capsys):
    def refused(_):
        raise InputError("two questions for five folds; give more")

    assert run_command(monkeypatch, [], refused) == 1
    assert "two questions for five folds" in capsys.readouterr().err


def test_what_was_measured_before_something_was_missing_is_kept(monkeypatch, tmp_path, capsys):
    def run(options):
        yield FIGURES[0]
        yield options.folder("typo", "nowhere")

    file = tmp_path / "figures.json"
    arguments = ["--data", str(tmp_path), "--json", str(file)]
    assert run_command(monkeypatch, arguments, run) == 1
    said = capsys.readouterr()
    assert "rival 4" in said.out
    assert "'typo'" in said.err
    assert "the 1 figures above are all that was measured" in said.err
    assert load_figures(file)[1] == [FIGURES[0]]


def test_bad_usage_exits_with_2(monkeypatch):
    assert run_command(monkeypatch, ["--no-such-option"], lambda _: []) == 2


def test_a_named_set_is_found(tmp_path):
    (tmp_path / "uci").mkdir()
    assert Options(data=tmp_path).folder("uci", "") == tmp_path / "uci"
    with pytest.raises(DataError, match="is not in"):
        Options(data=tmp_path).folder("obd", "elsewhere")


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (-1234.5, "-1,234"), (math.nan, "–")])
def test_numbers_are_shown_for_people(value, text):
    assert show_number(value) == text


@pytest.mark.skipif(not Path("/proc/stat").is_file(), reason="Linux alone tells")
def test_the_share_of_time_that_cores_were_there_is_told():
    cores = CoreTime()
    time.sleep(0.5)
    assert 0.2 < cores.share() < 1.2


def test_where_nothing_tells_the_share_it_is_not_known(monkeypatch):
    monkeypatch.setattr("benchmarks.machine.Path", lambda _: Path("/nowhere"))
    assert CoreTime().share() is None


def test_the_machine_is_described_in_json_values():
    assert json.loads(json.dumps(describe_machine())) == describe_machine()


@pytest.mark.parametrize(("size", "repeats"), [(100, 3), (2**20, 0)])
def test_bandwidth_refuses_what_cannot_be_timed(size, repeats):
    with pytest.raises(ValueError, match="at least 4096 bytes and 1 repeat"):
        measure_bandwidth(size, repeats=repeats)
