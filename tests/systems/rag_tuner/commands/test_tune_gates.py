"""``rollout run --gates`` and ``tune canary``: the tuner's gates on a canary."""

import json
import shlex

import click
import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.cli.rollout_views import overrides_of
from steersman.rollouts.plan import plan_of
from steersman.spec.loader import load
from steersman_systems.configs import shipped
from steersman_systems.rag_tuner.canary import canary_plan
from steersman_systems.rag_tuner.commands.gates import gate_options, gate_sources
from steersman_systems.rag_tuner.policy_config import load_policy_config


@click.command()
@gate_options
def told(**gates):
    """Say which sources there are."""
    found = gate_sources(gates)
    each = [vars(one) for source in found for one in source._sources.values()]
    said = [[*one["about"], one["_queries"], one["_batches"], one["_coverage"]] for one in each]
    click.echo(json.dumps([[one.name for one in found], said]))


def ask(*arguments, environment=None, status=0):
    done = CliRunner().invoke(told, arguments, env=environment or {})
    assert done.exit_code == status, done.output
    return json.loads(done.output) if not status else done.output


def test_points_are_named_by_options_or_by_the_environment():
    assert ask() == [[], []]
    given = ("--gates", "rag/retrieval", "--gates", "shop/search", "--gate-coverage", "0.2")
    assert ask(*given, "--gate-queries", "50") == [
        ["gates"],
        [["rag", "retrieval", 50, 3, 0.2], ["shop", "search", 50, 3, 0.2]],
    ]
    named = {"STEERSMAN_GATES": "rag/retrieval", "STEERSMAN_GATE_BATCHES": "5"}
    assert ask(environment=named) == [["gates"], [["rag", "retrieval", 100, 5, 0.9]]]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("--gates", "retrieval"), "expected SKILL/POINT"),
        (("--gates", "rag/"), "expected SKILL/POINT"),
        (("--gates", "a/b", "--gate-coverage", "0"), "0<x<=1"),
        (("--gates", "a/b", "--gate-queries", "9"), "10<=x<=10000"),
    ],
)
def test_what_names_no_gates(wrong, says):
    assert says in ask(*wrong, status=2)


def test_the_controller_takes_them_and_tells_wrong_ones_before_it_begins(tmp_path):
    asked = ["rollout", "run", "--home", str(tmp_path / "home"), "--gates", "retrieval"]
    done = CliRunner().invoke(main, asked)
    assert (done.exit_code, "expected SKILL/POINT" in done.output) == (2, True)
    assert not (tmp_path / "home").exists()


def test_the_plan_of_a_canary_is_printed_as_options_that_a_rollout_takes():
    printed = CliRunner().invoke(main, ["tune", "canary"]).output
    words = shlex.split(printed.replace('"', '\\"'))
    changes = tuple(word for word in words if word != "--set")
    assert len(changes) == len(words) / 2
    wanted = canary_plan(load_policy_config())
    assert overrides_of(changes) == wanted
    point = load(shipped("rag/retrieval.yaml"))
    plan_of(point, salt="s", overrides=overrides_of(changes))
    said = CliRunner().invoke(main, ["tune", "canary", "--json"]).output
    assert json.loads(said) == wanted
