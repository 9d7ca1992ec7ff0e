"""``steersman evidence weigh``: what a point's own log says of another selector."""

import time
from uuid import uuid4

import numpy as np
import pytest

from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.rewards import RewardRow, append_rewards
from steersman.db.tenants import find_tenant
from steersman.platform.postgres.database import as_tenant
from steersman.points.feature_encoding import as_stored
from steersman.points.policy_factory import initial_policy
from steersman.policies.offered import Offered
from steersman.wire import selection_name
from tests.db.rows import decision_of
from tests.kept import run
from tests.learning.shipping_world import PASSPHRASE

SELECT = """
format: 1
skill: evidence
decision: select
actions: {kind: sequence, max_steps: 2, candidates: 6, features: [good]}
policy: {algorithm: sequence_linear, start: {good: 0.1}, leading: 3, temperature: 0.1}
floor: 0.3
fallback: {otherwise: first}
reward: {terms: {answered: {weight: 1}}, window_s: 60}
"""
POINT = ("evidence", "select")
TREES = (
    SELECT.replace("sequence_linear, start: {good: 0.1}, leading: 3, temperature: 0.1",
                   "sequence_trees, start: {good: 1.0}, leading: 5")
    + "learning: {mode: frozen}\n"
)  # fmt: skip


@pytest.fixture(scope="module")
def logged(command, database):
    name = f"t-{uuid4().hex[:12]}"
    command("tenant", "create", name)
    run(_log(database, name, SELECT, 500))
    return name


async def _log(database, name, document, count):
    """Selections of two hours ago; only what is good earns."""
    tenant = await find_tenant(database, name)
    row = await declare(database, tenant.id, document, actor="test")
    policy, rng, at = initial_policy(row.spec), np.random.default_rng(0), time.time() - 7200
    rows, rewards = [], []
    for number in range(count):
        offered = Offered.of(["a", "b", "c", "d"], {"d": ["e"]}, rng.random((5, 1)).round(2))
        found = policy.select(offered, rng=rng)
        one = decision_of(
            row, {}, selection_name(found.picked), at=at + number,
            eligible=["a", "b", "c", "d"], links={"d": ["e"]},
            steps=[{"eligible": list(s.eligible), "action": s.action, "p": s.p}
                   for s in found.steps],
            distribution=np.concatenate(found.distributions).tolist(), p=found.propensity,
            x=as_stored(found.x), features=as_stored(offered.rows), u=None,
        )  # fmt: skip
        rows.append(one)
        good = sum(float(offered.rows[offered.names.index(it), 0]) for it in found.picked)
        rewards.append(RewardRow(one.id, 1, row.spec_hash, good / 2, "scored", {}, True))
    connection = await database.connect("app")
    await log_decisions(connection, rows)
    await connection.close()
    connection = await database.connect("worker")
    async with as_tenant(connection, tenant.id):
        await append_rewards(connection, tenant.id, rewards)
    await connection.close()


def test_another_declaration_is_weighed_on_the_log(command, logged, tmp_path):
    own, better = tmp_path / "own.yaml", tmp_path / "better.yaml"
    own.write_text(SELECT)
    better.write_text(SELECT.replace("start: {good: 0.1}", "start: {good: 0.3, is_stop: -0.2}"))
    same, other = (
        command.json("evidence", "weigh", *POINT, "--spec", file, "--tenant", logged)
        for file in (own, better)
    )
    assert same["selections"] == other["selections"] == 500
    assert same["effective_sample_size"] == pytest.approx(500)
    assert not other["refused"], other["reasons"]
    assert other["dr"]["low"] > same["dr"]["value"]
    assert other["effective_sample_size"] < 500


def test_what_cannot_be_told_is_refused_with_reasons(command, logged, tmp_path):
    far = tmp_path / "far.yaml"
    far.write_text(SELECT.replace("start: {good: 0.1}", "start: {good: -9}"))
    told = command.json(
        "evidence", "weigh", *POINT, "--spec", far, "--tenant", logged, "--newest", 120, status=1
    )
    assert (told["refused"], told["dr"]) == (True, None)
    assert told["reasons"]


def test_bad_usage_is_told(command, logged, tmp_path):
    wide = tmp_path / "wide.yaml"
    wide.write_text(SELECT.replace("max_steps: 2", "max_steps: 3"))
    end = ("--tenant", logged)
    assert "expected exactly one of" in command("evidence", "weigh", *POINT, *end, status=2)
    said = command("evidence", "weigh", *POINT, "--spec", wide, *end, status=1)
    assert "declare the same" in said
    said = command("evidence", "weigh", *POINT, "--version", "0.1.0", *end, status=1)
    assert "no selection made after 0.1.0" in " ".join(said.split())


def test_versions_are_compared_by_whole_selections(command, logged):
    both = ("0.1.0", "0.1.0")
    told = command.json("snapshot", "diff", *POINT, *both, "--share", 1, "--tenant", logged)
    assert told["traffic"] is None
    assert told["off_policy"]["delta"] == pytest.approx(0.0)
    assert told["off_policy"]["ess"] == pytest.approx([500, 500])


def test_trees_are_grown_weighed_and_published(command, database):
    pytest.importorskip("lightgbm")
    command.environment["STEERSMAN_ROOT_PASSPHRASE"] = PASSPHRASE
    name = f"t-{uuid4().hex[:12]}"
    command("tenant", "create", name)
    command("snapshot", "keys", "init", "--tenant", name)
    run(_log(database, name, TREES, 1_200))
    grow = ("evidence", "grow", *POINT, "--tenant", name)
    told = command.json(*grow)
    assert told["grown_from"] + told["selections"] == 1_200
    assert 180 < told["selections"] < 300
    assert (told["unsupported"], told["adaptive"]) == (pytest.approx(0.0, abs=1e-9), True)
    assert told["gain"]["value"] == pytest.approx(told["wpdis"]["value"] - told["earned"])
    assert told["gain"]["low"] > 0.0
    assert (told["better"], told["version"]) == (True, None)
    assert (told["look"], told["level"]) == (1, pytest.approx(0.95))
    told = command.json(*grow, "--publish")
    assert (told["look"], told["level"]) == (2, pytest.approx(1 - 0.1 / 6))
    assert told["version"] == "0.1.1"
    shown = command.json("snapshot", "show", *POINT, "0.1.1", "--tenant", name)
    assert shown["algorithm"] == "sequence_trees"
    signed = shown["evidence"]
    assert signed["grown"]["selections"] == told["grown_from"]
    assert (signed["grown"]["seed"], signed["grown"]["asked"]) == (0, 10_000)
    assert signed["grown"]["oldest"] < signed["grown"]["newest"]
    assert signed["weighed"]["wpdis"] == told["wpdis"]
    assert 60 < signed["held_out"]["decisions"] < 180  # of units that nothing was grown from
    acts = [one["action"] for one in command.json("audit", "list", "--tenant", name)]
    assert acts.count("evidence.grow") == 2
    few = command("evidence", "grow", *POINT, "--newest", 50, "--tenant", name, status=1)
    assert "at least 100" in few


def test_what_the_log_never_let_lead_is_refused(command, logged, tmp_path):
    wider = tmp_path / "wider.yaml"
    wider.write_text(SELECT.replace("leading: 3", "leading: 5"))
    told = command.json("evidence", "weigh", *POINT, "--spec", wider, "--tenant", logged, status=1)
    assert told["unsupported"] > 0.1
    assert "raise leading" in " ".join(told["reasons"])
    assert (told["wpdis"], told["refused"]) == (None, True)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("gates: {min_effective_sample_size: 900}", "at least 900 needed"),
        ("gates: {min_value: 0.99}", "at least 0.99 needed"),
        ("explore: none", "declares explore: none"),
    ],
)
def test_the_rules_of_a_point_are_kept(command, database, tmp_path, rule, said):
    name = f"t-{uuid4().hex[:12]}"
    command("tenant", "create", name)
    document = SELECT + rule + "\n"
    if "explore" in rule:
        document = document.replace("floor: 0.3\n", "")
    run(_log(database, name, document, 150))
    own = tmp_path / "own.yaml"
    own.write_text(document)
    told = command("evidence", "weigh", *POINT, "--spec", own, "--tenant", name, status=1)
    assert said in " ".join(told.split())


def test_a_version_of_other_actions_is_not_weighed(command, database):
    name = f"t-{uuid4().hex[:12]}"
    command("tenant", "create", name)
    run(_log(database, name, SELECT, 5))
    run(_log(database, name, SELECT.replace("max_steps: 2", "max_steps: 1"), 5))
    said = command("evidence", "weigh", *POINT, "--version", "0.1.0", "--tenant", name, status=1)
    assert "actions of 0.1.0 differ" in " ".join(said.split())


def test_only_points_that_declare_trees_grow_them(command, logged):
    said = command("evidence", "grow", *POINT, "--tenant", logged, status=1)
    assert "expected sequence_trees" in " ".join(said.split())
