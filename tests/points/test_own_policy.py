"""A policy of another distribution is served, learned, explained, published and rolled out."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from steersman.cli.running_service import served
from steersman.client import Client
from steersman.errors import InputError, SpecError, StateError
from steersman.points import algorithms
from steersman.points.policy_factory import build, initial_policy, load_policy
from steersman.spec import loader, policy, schema
from steersman.testing import check_policy
from tests.clusters import copy_cluster
from tests.examples.pages import environment, type_in
from tests.learning.shipping_world import PASSPHRASE

PAGE = Path("docs/how-to/add-a-policy.md").read_text()
CODE, PROJECT, DECLARED = (
    re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL).group(1)
    for kind in ("python", "toml", "yaml")
)
CACHES = (
    algorithms._installed,
    algorithms.policy_class,
    policy.parameters_of,
    schema._schema,
    loader._read_once,
)


def forget():
    for cache in CACHES:
        cache.cache_clear()


@contextmanager
def installed_code(folder, monkeypatch, code):
    """Have a distribution with this code; it also claims the name of a built-in policy."""
    described = folder / "boltzmann-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: boltzmann\nVersion: 1.0\n")
    entry = "[steersman.policies]\nboltzmann = boltzmann:Boltzmann\nlin_ucb = boltzmann:Boltzmann\n"
    (described / "entry_points.txt").write_text(entry)
    (folder / "boltzmann.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    forget()
    try:
        yield
    finally:
        forget()
        sys.modules.pop("boltzmann", None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page's distribution, built and installed by pip into a folder of its own."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    (source / "boltzmann.py").write_text(CODE)
    (source / "pyproject.toml").write_text(PROJECT)
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--quiet", "--target", target, source], check=True, timeout=120)
    return target


@pytest.fixture
def installed(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    forget()
    yield folder
    forget()
    sys.modules.pop("boltzmann", None)


def test_the_policy_of_the_page_has_about_40_lines():
    assert sum(bool(line.strip()) for line in CODE.splitlines()) <= 45


@pytest.mark.usefixtures("installed")
def test_installed_policy_is_declared_built_and_checked():
    point = loader.loads(DECLARED)
    assert point.policy.temperature == 0.2
    assert point.policy.reads == "nothing"
    assert loader.loads(json.dumps(point.model_dump(mode="json"))) == point
    assert loader.loads(DECLARED.replace(", temperature: 0.2", "")).policy.temperature == 0.1
    made = build(point.policy, point.actions.names, dim=0, floor=0.1)
    wanted = "Boltzmann(actions=['short', 'friendly', 'formal'], floor=0.1, temperature=0.2)"
    assert repr(made) == wanted
    check_policy(made)
    made.learn(None, "short", 1.0)
    assert np.array_equal(load_policy(made.state()).distribution(None), made.distribution(None))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (
            "boltzmann, temperature: -1.0",
            "too small; got -1.0; allowed above 0.0; raise it",
        ),
        ("boltzmann, temperature: hot", "temperature: wrong type; got 'hot'; allowed a number"),
        ("boltzmann, temprature: 1.0", "allowed algorithm, temperature; did you mean temperature"),
        ("boltzman", "algorithm: unknown choice; got 'boltzman'; allowed .*'boltzmann'"),
    ],
)
def test_wrong_declaration_of_installed_policy_names_line_field_and_range(declared, said):
    text = DECLARED.replace("boltzmann, temperature: 0.2", declared)
    with pytest.raises(SpecError, match=rf"tone.yaml:5: policy\.\w+: .*{said}|{said}"):
        loader.loads(text, source="tone.yaml")


@pytest.mark.usefixtures("installed")
def test_installed_policy_refuses_actions_that_it_does_not_support():
    sequence = "{kind: sequence, max_steps: 2, features: [score]}"
    text = DECLARED.replace("{kind: choice, names: [short, friendly, formal]}", sequence)
    with pytest.raises(SpecError, match="does not support sequence actions; got 'boltzmann'"):
        loader.loads(text)


@pytest.mark.usefixtures("installed")
def test_schema_for_editors_has_installed_policies_and_the_shipped_file_does_not():
    found = schema.json_schema()
    assert found["$defs"]["boltzmann"]["properties"]["temperature"]["exclusiveMinimum"] == 0
    assert "boltzmann" in found["properties"]["policy"]["discriminator"]["mapping"]
    assert schema.published() == schema.SCHEMA_FILE.read_text(encoding="utf-8")


def test_policy_that_is_not_installed_is_named_with_its_state(installed):
    state = algorithms.policy_class("boltzmann")(["a", "b"]).state()
    sys.path.remove(str(installed))
    forget()
    with pytest.raises(StateError, match="boltzmann"):
        load_policy(state)
    with pytest.raises(InputError, match=r"unknown algorithm 'boltzmann'; .*; install"):
        algorithms.policy_class("boltzmann")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('no licence')", "cannot be imported.*no licence"),
        ("Boltzmann = dict", "not a subclass of steersman.policies.ChoicePolicy"),
        (CODE.replace('"boltzmann"', '"other"'), "its algorithm is 'other', expected 'boltzmann'"),
        (CODE.replace('reads = "nothing"', 'reads = "all"'), "its reads is 'all', expected"),
        (CODE.replace(": Annotated[float, Field(gt=0, le=100)]", ""), "parameter that cannot"),
    ],
)  # fmt: skip
def test_broken_installed_policy_is_reported_and_the_others_work(tmp_path, monkeypatch, code, said):
    with installed_code(tmp_path, monkeypatch, code):
        with pytest.raises(SpecError, match=said):
            loader.loads(DECLARED)
        other = loader.loads(DECLARED.replace("boltzmann, temperature: 0.2", "lin_ucb"))
        assert other.policy.policy_class.__module__ == "steersman.policies.linucb"
        with pytest.raises(SpecError, match="joint_squarecb needs features"):
            loader.loads(DECLARED.replace("boltzmann, temperature: 0.2", "joint_squarecb"))


def test_problem_that_only_the_constructor_sees_is_reported_at_the_policy(tmp_path, monkeypatch):
    refusal = "        if len(actions) > 2:\n            raise ValueError('at most 2 actions')\n"
    code = CODE.replace("        self.temperature =", f"{refusal}        self.temperature =")
    with installed_code(tmp_path, monkeypatch, code):
        match = r"tone.yaml:5: policy: Boltzmann fails: ValueError\('at most 2 actions'\); got {"
        with pytest.raises(SpecError, match=match):
            loader.loads(DECLARED, source="tone.yaml")


def test_built_in_policy_is_one_file_and_one_line(tmp_path, monkeypatch):
    (tmp_path / "boltzmann.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(algorithms.BUILT_IN, "boltzmann", "boltzmann:Boltzmann")
    forget()
    try:
        point = loader.loads(DECLARED)
        assert initial_policy(point).temperature == 0.2
        assert '"#/$defs/boltzmann"' in schema.published()
    finally:
        forget()
        sys.modules.pop("boltzmann", None)


@pytest.fixture
def home(cluster):
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    copy_cluster(cluster, folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_installed_policy_is_served_learned_explained_published_and_rolled_out(
    home, tmp_path, monkeypatch
):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with served(home, "sample", [DECLARED], controller=True) as service:
        ours = environment(
            home,
            STEERSMAN_URL=service.urls[0],
            STEERSMAN_API_KEY=service.key,
            STEERSMAN_ROOT_PASSPHRASE=PASSPHRASE,
        )

        def told(command):
            return type_in(f"steersman {command}", ours, tmp_path)

        told("snapshot keys init")
        with Client(service.urls[0], service.key) as client:
            for _ in range(60):
                decision = client.decide("support", "tone", {})
                assert not decision.degraded
                solved = float(decision.action == "short")
                client.task_result(decision, outcomes={"solved": solved})
            client.flush(20)

            end = time.monotonic() + 60
            while decision.distribution["short"] < 0.8 and time.monotonic() < end:
                decision = client.decide("support", "tone", {})
            assert client.explain(decision, recompute=True)["recomputed"]["same"]
        assert decision.distribution["short"] > 0.8
        assert decision.update_seq > 0
        assert re.search(r"algorithm +boltzmann", told("snapshot publish support tone"))
        assert re.search(r"same +yes", told("snapshot reproduce support tone 0.1.1"))
        assert '"algorithm":"boltzmann"' in told("snapshot manifest")
        told("snapshot fetch support tone 0.1.1 --out tone.state.zst")
        (tmp_path / "candidate.yaml").write_text(DECLARED.replace("0.2}", "0.5}"))
        told("snapshot publish support tone --spec candidate.yaml")
        assert re.search(r"temperature +0.2 → 0.5", told("snapshot diff support tone 0.1.1 0.2.1"))
        told("rollout start support tone 0.2.1 --reason 'explore more'")
        assert "shadow" in told("rollout history support/tone")
        with Client(service.urls[1], service.key) as client:
            assert not client.decide("support", "tone", {}).degraded
