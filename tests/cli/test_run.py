"""``steersman run``: the pipeline as people and programs see it."""

import asyncio
import json
from uuid import uuid4

import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.db.declarations import declare
from steersman.db.tenants import find_tenant
from steersman_systems.assistant.points import point_documents
from tests.learning.shipping_world import PASSPHRASE
from tests.learning.world import learn_all
from tests.rollouts.pipeline.world import traffic


@pytest.fixture(scope="module")
def shell(command):
    """The command, with a passphrase in its environment."""
    command.environment["STEERSMAN_ROOT_PASSPHRASE"] = PASSPHRASE
    return command


@pytest.fixture(scope="module")
def name(shell, database):
    """A tenant with keys, whose routes have learned from three thousand requests."""
    name = f"t-{uuid4().hex[:12]}"
    shell("tenant", "create", name)
    shell("snapshot", "keys", "init", "--tenant", name)

    async def learn():
        connection = await database.connect("worker")
        await connection.execute("DELETE FROM work")
        await connection.close()
        tenant = await find_tenant(database, name)
        rows = [
            await declare(database, tenant.id, document, actor="test")
            for document in point_documents()
        ]
        await traffic(database, rows[1], 3000)
        await learn_all(database)

    asyncio.run(learn())
    return name


@pytest.fixture
def run(shell, name):
    """``steersman run assistant`` for that tenant."""

    def ran(*arguments, status=0, as_json=False):
        call = shell.json if as_json else shell
        return call("run", "assistant", "--tenant", name, *arguments, status=status)

    return ran


def test_a_dry_run_counts_trains_and_judges(run):
    said = run("--only", "route", "--dry-run")
    lines = [line.split()[1:3] for line in said.splitlines() if line.startswith("route ")]
    assert lines[:3] == [["dataset", "done"], ["train", "done"], ["evaluate", "done"]]
    assert [line[1] for line in lines[3:]] == ["would"] * 4
    assert "max_standard_error" in said
    assert "at most 0.05" in said
    told = run("--only", "route", "--dry-run", as_json=True)
    assert told["dry_run"] is True
    assert [one["step"] for one in told["steps"]][:3] == ["dataset", "train", "evaluate"]
    assert told["steps"][2]["gates"][0]["passes"] is True


def test_a_refused_gate_and_an_empty_log_are_status_one(run, tmp_path):
    file = tmp_path / "strict.json"
    file.write_text(json.dumps({"evaluation": {"min_policy_value": 0.99}}))
    said = run("--only", "route", "--step", "evaluate", "--config", file, status=1)
    assert "refused by min_value" in said
    assert "at least 0.99" in said
    told = run("--dry-run", status=1, as_json=True)
    status = {(one["point"], one["step"]): one["status"] for one in told["steps"]}
    assert status["cache", "dataset"] == "refused"
    assert ("cache", "train") not in status
    assert status["route", "evaluate"] == "done"


def test_bad_configurations_and_bad_usage(run, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("evaluation:\n  max_variance: 0.3\n")
    said = run("--config", file, "--dry-run", status=1)
    assert f"{file}:2: evaluation.max_variance" in said
    assert "use max_standard_error instead" in said
    file.write_text("training:\n  route: {alpha: -3}\n")
    assert "training.route.alpha: too small" in run("--config", file, "--dry-run", status=1)
    assert "unknown decision point 'routes' of assistant" in run("--only", "routes", status=2)
    assert "cannot be combined with --step or --dry-run" in run(
        "--validate-only", "--dry-run", status=2
    )
    run("--step", "deploy", status=2)
    ran = CliRunner().invoke(main, ["run", "butler"])
    assert ran.exit_code == 2


def test_it_is_published_started_followed_and_not_promoted_yet(run, shell, name):
    assert all(one["ok"] for one in run("--validate-only", as_json=True))
    said = run("--only", "route", "--wait", "0", status=1)
    assert "published 0.1.1" in said
    assert "canary 0.05" in said
    assert "check that `steersman up` or `steersman rollout run` is running" in said
    (row,) = shell.json("rollout", "status", "--tenant", name)
    assert (row["candidate"], row["stage"]) == ("0.1.1", "shadow")
    followed = run("--only", "route", "--step", "monitor", "--wait", "0.1")
    assert "running, shadow 0%" in followed
    assert "0.1.1 verify" in run("--validate-only")
    (file,) = (shell.home / "registry" / name).rglob("*.state.zst")
    file.write_bytes(b"x" + file.read_bytes()[1:])
    checks = {one["check"]: one["ok"] for one in run("--validate-only", status=1, as_json=True)}
    assert [check for check, ok in checks.items() if not ok] == ["route: snapshots"]


def test_what_is_not_declared_is_told(shell):
    other = f"t-{uuid4().hex[:12]}"
    shell("tenant", "create", other)
    said = shell("run", "assistant", "--tenant", other, status=1)
    assert f"not declared by tenant {other}: assistant/cache, route, tool" in said
    checks = shell.json("run", "assistant", "--validate-only", "--tenant", other, status=1)
    assert {one["check"] for one in checks if not one["ok"]} == {
        "keys",
        "cache: declaration",
        "route: declaration",
        "tool: declaration",
    }
