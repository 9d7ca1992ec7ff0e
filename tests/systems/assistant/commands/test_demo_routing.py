"""``steersman demo assistant --data``: other people's routing data, as a person names it."""

import json

import pytest
from click.testing import CliRunner

from steersman.cli import main

pytest.importorskip("pyarrow")

from pyarrow import Table, parquet

SPLIT = ["train"] * 30 + ["test"] * 30
TEXTS = [f"{('train', 'bank')[n % 2]} {n}" for n in range(60)]
FOLDERS = {
    "mine": {
        "prompt": TEXTS,
        "eval_name": ["x"] * 60,
        "split": SPLIT,
        "m1|score": [float(n % 2 == 0) for n in range(60)],
        "m1|cost": [0.001] * 60,
        "m2|score": [float(n % 2 == 1) for n in range(60)],
        "m2|cost": [0.001] * 60,
    },
    "tools": {"query": TEXTS, "tool": [("rail", "money")[n % 2] for n in range(60)]},
}


@pytest.fixture
def data(tmp_path):
    for name, rows in FOLDERS.items():
        (tmp_path / name).mkdir()
        parquet.write_table(Table.from_pydict(rows), tmp_path / name / "rows.parquet")
    return tmp_path


def _demo(*arguments):
    return CliRunner().invoke(main, ["demo", "assistant", *(str(a) for a in arguments)])


def test_folders_are_learned_on_and_reported(data):
    file = data / "report.json"
    ran = _demo("--data", data, "--sets", "mine,tools", "--orders", "2", "--json", file)
    assert ran.exit_code == 0, ran.output
    mine, tools = json.loads(file.read_text())["data"]
    assert (mine["name"], mine["requests"], mine["orders"]) == ("mine", 30, 2)
    assert mine["policies"]["oracle"]["reward"] == pytest.approx(0.98)  # a call costs .001 USD
    assert mine["learned_minus_best_fixed"]["low"] > 0.0
    assert (mine["unit"], tools["unit"]) == ("score - 20 x USD", "share of right choices")
    assert (tools["algorithm"], tools["choices"]) == ("JointSquareCB", 2)
    assert (mine["warm_requests"], tools["warm_requests"]) == (30, 0)
    said = " ".join(ran.output.split())
    assert "best fixed choice: from 30 other requests with the scores of all choices" in said
    assert "no warm start; the best fixed choice is chosen in hindsight" in said
    for set_ in (mine, tools):
        assert f"{set_['policies']['learned']['reward']:.4f}" in ran.output
        assert set_["policies"]["best_fixed"]["choice"] in ran.output


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--sets", "mine"], 2, "give --data DIR or set $STEERSMAN_DATA"),
        (["--data", "DATA"], 2, "holds none of routerbench_subset, llmrouter_dc, metatool"),
        (["--data", "DATA/nowhere"], 2, "is not a directory"),
        (["--data", "DATA", "--sets", "mine", "--explain", "3"], 2, "cannot be used with --data"),
        (
            ["--data", "DATA", "--sets", "mine", "--arrivals", "1400"],
            2,
            "cannot be used with --data",
        ),
        (["--data", "DATA", "--sets", "mine,other"], 1, "unknown router data 'other'"),
        (["--data", "DATA", "--sets", "metatool"], 1, "metatool is missing; put metatool there"),
    ],
)
def test_what_cannot_be_learned_on_is_told_before_anything_is(
    data, arguments, status, told, monkeypatch
):
    monkeypatch.delenv("STEERSMAN_DATA", raising=False)
    ran = _demo(*(argument.replace("DATA", str(data)) for argument in arguments))
    assert ran.exit_code == status, ran.output
    assert told in " ".join(ran.output.split())
    assert "oracle" not in ran.output


def test_sets_are_those_of_the_variable_where_no_directory_is_named(data, monkeypatch):
    monkeypatch.setenv("STEERSMAN_DATA", str(data))
    ran = _demo("--sets", "other")
    assert ran.exit_code == 1
    assert "unknown router data 'other'" in " ".join(ran.output.split())
