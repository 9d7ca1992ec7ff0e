"""A candidate that begins to fail, the real Prometheus and Alertmanager, and who notices."""

import re
import shutil
import tempfile
from pathlib import Path

import pytest

from benchmarks.monitoring_stack import CONFIGURATION
from benchmarks.rollout_fault import fault
from steersman.wire import new_id


@pytest.fixture(scope="module")
def found(programs):
    """What one fault did; nobody but the application knew of it."""
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)  # a server of its own: Prometheus is for one
        yield fault(folder, warm_s=4.0, tenant=f"fault-{new_id().hex}")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_it_is_rolled_back_within_ten_seconds_of_its_first_failure(found):
    assert 0 < found.rolled_back_s < 10
    assert found.served_s < found.rolled_back_s + 2  # and every process knows soon
    assert "burns the error budget" in found.reason
    assert re.search("says (store|prometheus)", found.reason)  # whichever counted it first


@pytest.mark.slow
def test_the_alert_fires_and_is_delivered_and_no_other_page(found):
    assert found.fired_s < 10
    assert found.delivered_s < 12
    allowed = {"SteersmanCandidateFailing", "SteersmanCandidateBurnsBudget"}
    assert "SteersmanCandidateFailing" in found.alerts
    assert set(found.alerts) <= allowed


@pytest.mark.slow
def test_nobody_who_asked_was_refused_or_got_a_fallback(found):
    assert found.failed >= 10
    assert (found.refused, found.degraded) == (0, 0)
    assert found.asked > 500


@pytest.mark.slow
def test_every_series_that_the_rules_read_is_there(found):
    rules = (CONFIGURATION / "alerts.yml").read_text(encoding="utf-8")
    read = set(re.findall(r"(?<![:\w])steersman_[a-z_]+", rules)) - {"steersman_"}
    on_trouble = {"steersman_flush_failures_total", "steersman_learner_lag_seconds"}
    assert read - set(found.series) <= on_trouble
    table = (CONFIGURATION / "README.md").read_text(encoding="utf-8")
    told = {f"steersman_{name}" for name in re.findall(r"`([a-z_]+)`", table)}
    assert {re.sub("_(bucket|count)$", "", name) for name in read} <= told
