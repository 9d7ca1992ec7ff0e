"""Debian's Prometheus and Alertmanager: without them tests are skipped, in CI they fail."""

import os

import pytest

from benchmarks.monitoring_stack import missing


@pytest.fixture(scope="session")
def programs():
    """See to it that prometheus, promtool, alertmanager and amtool are installed."""
    if missing():
        message = f"{', '.join(missing())} not installed; `tools/prometheus` installs them"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
