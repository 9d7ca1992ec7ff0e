"""A real cluster of two nodes, one of which is killed in the middle of what it does."""

import json
import subprocess
import sys
import time
from importlib.util import find_spec

import click
import numpy as np
import pytest
from ruamel.yaml import YAML

from steersman.cli import main
from tests.deploy import spreading_process
from tests.ray_nodes import ROOT, two_nodes
from tests.systems.evidence_selection.commands.evidence_sets import write_bands
from tests.systems.rag_tuner.worlds import world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("ray") is None,
        reason="Ray is not installed; `tools/install ray` does it",
    ),
]
_PATIENCE_S = 400.0


@pytest.fixture(scope="module")
def nodes():
    with two_nodes() as started:
        yield started


@pytest.fixture
def two(nodes):
    nodes.have_a_second()
    return nodes


def wait_until(there):
    until = time.monotonic() + _PATIENCE_S
    while not there():
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.02)


def told(process):
    said, _ = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0
    return said


def test_a_sweep_gives_the_same_rows_as_here(two, tmp_path):
    file = tmp_path / "world.npz"
    world(queries=60).save(file)
    asked = ("-m", "steersman.cli", "tune", "sweep", file, "--json")
    spread, here = (told(two.start(*asked, *more)) for more in (("--ray", two.address), ()))
    assert json.loads(spread) == json.loads(here)
    assert len(json.loads(here)) == 25


def test_what_a_lost_node_was_doing_is_done_again_with_the_same_result(two, tmp_path):
    lost = two.second
    process = two.start("-m", "tests.deploy.spreading_process", two.address, tmp_path)
    wait_until(lambda: list(tmp_path.glob(f"*-{lost}")))
    two.lose_the_second()
    found = json.loads(told(process))
    begun = [mark.name.partition("-") for mark in tmp_path.iterdir()]
    on_lost = {item for item, _, node in begun if node == lost}
    assert on_lost & {item for item, _, node in begun if node != lost}, "nothing was done twice"
    expected = []
    for place in range(spreading_process.ITEMS):
        rng = np.random.default_rng([3, place])
        both = rng.normal(size=(40, 40)), rng.normal(size=(40, 40))
        expected.append((both[0] @ both[1]).tobytes().hex())
    assert found == expected


@pytest.mark.nightly
def test_evidence_is_measured_and_drawn_alike_though_a_node_is_lost(two, tmp_path):
    """Folds of contenders, and selections drawn for learning: the same bytes as without Ray."""
    pytest.importorskip("bm25s", reason="the extra rag or demo")
    lost, here = two.second, tmp_path / "here"
    here.mkdir()
    process = two.start("-m", "tests.deploy.evidence_process", two.address, tmp_path)
    wait_until(lambda: list(tmp_path.glob(f"*@{lost}")))
    two.lose_the_second()
    found = told(process)
    begun = [mark.name.partition("@") for mark in tmp_path.glob("*@*")]
    on_lost = {fold for fold, _, node in begun if node == lost}
    assert on_lost & {fold for fold, _, node in begun if node != lost}, "nothing was done twice"
    assert found == told(two.start("-m", "tests.deploy.evidence_process", "here", here))
    assert len(json.loads(found)["drawn"]) == 6 * 5


@pytest.mark.nightly
def test_the_command_measures_the_same_on_a_cluster(two, tmp_path):
    pytest.importorskip("bm25s", reason="the extra rag or demo")
    write_bands(tmp_path / "bands")
    asked = (
        "-m", "steersman.cli", "evidence", "evaluate", "--data", tmp_path, "--home", tmp_path,
        "--sets", "bands", "--policies", "+BC, linear;oracle", "--picks", 2, "--words",
        "--ablations", "--json",
    )  # fmt: skip
    spread, here = (json.loads(told(two.start(*asked, *more)))["figures"]
                    for more in (("--ray", two.address), ()))  # fmt: skip
    assert spread.keys() == here.keys()
    lasting = [name for name in here if "latency" not in name]
    assert {name: spread[name] for name in lasting} == {name: here[name] for name in lasting}


@pytest.mark.nightly
def test_errors_are_those_of_the_function_and_what_ends_processes_ends(two):
    process = two.start("-m", "tests.deploy.spreading_process", two.address, "errors")
    refused, ended = json.loads(told(process))
    assert refused == ["InputError", "item 1 is refused"]
    assert ended[0] == "ClusterError"
    assert "failed item 0" in ended[1]
    assert "tried 6 times" in ended[1]


@pytest.mark.nightly
def test_a_job_trains_on_while_a_node_is_lost(two, tmp_path):
    pytest.importorskip("torch", reason="RLlib trains with it; `tools/torch` installs it")
    file, out = tmp_path / "world.npz", tmp_path / "policy.safetensors"
    world(queries=60).save(file)
    small = ("--made-up", 0, "--batch", 60, "--horizon", 16, "--episodes", 8, "--updates", 16)
    process = two.start(
        "-m", "ray.scripts.scripts", "job", "submit", "--address", two.dashboard,
        "--working-dir", ROOT / "deploy" / "ray", "--",
        sys.executable, "train_tuner.py", file, "--out", out, *small,
    )  # fmt: skip
    updates = []  # they are read a second or so late: training has to go on for longer than that
    with process:
        for line in process.stdout:
            if line.startswith('{"number"'):
                updates.append(json.loads(line))
                if len(updates) == 2:
                    two.lose_the_second()
                elif updates[-1]["runners"] == 1:
                    two.have_a_second()
    assert process.returncode == 0
    assert [one["number"] for one in updates] == list(range(1, 17))
    assert [one["runners"] for one in updates[:2]] == [2, 2]
    assert 1 in [one["runners"] for one in updates[2:]]
    assert np.isfinite([[one["reward"], one["divergence"]] for one in updates]).all()


def test_the_example_for_machines_that_there_are_is_what_ray_takes(tmp_path):
    program = tmp_path / "checking.py"
    program.write_text(
        "import sys, yaml\n"
        "from ray.autoscaler._private.util import prepare_config, validate_config\n"
        "with open(sys.argv[1]) as file:\n"
        "    validate_config(prepare_config(yaml.safe_load(file)))\n",
        encoding="utf-8",
    )
    file = ROOT / "deploy" / "ray" / "cluster.yaml"
    subprocess.run([sys.executable, program, file], check=True)


@pytest.mark.parametrize("name", ["rayjob.yaml", "rayjob_evidence.yaml"])
def test_the_examples_for_kubernetes_name_the_locked_ray_and_what_there_is(name):
    read = YAML(typ="safe").load(ROOT / "deploy" / "ray" / name)
    lock = (ROOT / "requirements" / "ray.lock").read_text(encoding="utf-8")
    assert f"\nray=={read['spec']['rayClusterSpec']['rayVersion']} " in lock
    program, *words = read["spec"]["entrypoint"].split()
    if program == "python":
        assert (ROOT / "deploy" / "ray" / words[0].rsplit("/", 1)[1]).exists()
        assert "--out" in words
        return
    command = main
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    known = {one for option in command.params for one in option.opts}
    assert {one for one in words if one.startswith("--")} <= known
