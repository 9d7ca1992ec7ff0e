"""The files of deploy/prometheus, as the programs read them that will read them."""

import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from benchmarks.monitoring_stack import CONFIGURATION

ROOT = Path(__file__).parent.parent.parent
TESTS = sorted((CONFIGURATION / "tests").glob("*.yml"))
RULES = [
    rule
    for group in YAML(typ="safe", pure=True).load(CONFIGURATION / "alerts.yml")["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]


def run(*command):
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.usefixtures("programs")
def test_prometheus_takes_configuration_and_rules():
    assert "SUCCESS" in run("promtool", "check", "config", CONFIGURATION / "prometheus.yml")
    said = run("promtool", "check", "rules", "--lint=all", CONFIGURATION / "alerts.yml")
    assert f"SUCCESS: {len(RULES)} rules found" in said


@pytest.mark.usefixtures("programs")
def test_alertmanager_takes_its_configuration():
    assert "SUCCESS" in run("amtool", "check-config", CONFIGURATION / "alertmanager.yml")


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should_and_not_else(file):
    assert "SUCCESS" in run("promtool", "test", "rules", file)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("severity=page", "alertname=SteersmanCandidateFailing"), "on-call"),
        (("severity=ticket", "alertname=SteersmanRolloutHeld"), "everyone"),
        (("severity=info", "alertname=SteersmanRolledBack"), "everyone"),
    ],
)
def test_pages_go_to_who_is_on_call_and_the_rest_to_everyone(labels, receiver):
    file = CONFIGURATION / "alertmanager.yml"
    said = run("amtool", "config", "routes", "test", f"--config.file={file}", *labels)
    assert said.startswith(f"{receiver}\n")


def test_every_alert_is_shown_firing_by_a_test():
    yaml = YAML(typ="safe", pure=True)
    shown = {
        (asked["alertname"], alert["exp_labels"]["severity"])
        for file in TESTS
        for case in yaml.load(file)["tests"]
        for asked in case["alert_rule_test"]
        for alert in asked["exp_alerts"]
    }
    assert shown == {(rule["alert"], rule["labels"]["severity"]) for rule in ALERTS}


@pytest.mark.parametrize("name", sorted({rule["alert"] for rule in ALERTS}))
def test_every_alert_is_explained_where_it_points(name):
    pages = {rule["annotations"]["runbook"] for rule in ALERTS if rule["alert"] == name}
    assert pages == {f"docs/how-to/alerts.md#{name.lower()}"}
    page = (ROOT / "docs" / "how-to" / "alerts.md").read_text(encoding="utf-8")
    assert re.search(rf"^### {name}$", page, re.MULTILINE)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alerts_are_of_one_form(rule):
    assert rule["alert"].startswith("Steersman")
    assert rule["labels"]["severity"] in {"page", "ticket", "info"}
    assert {"summary", "description", "runbook"} == set(rule["annotations"])
    assert "tenant" not in rule["expr"]
