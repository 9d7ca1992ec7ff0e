"""One installation per test: what a test breaks, no other test meets."""

from __future__ import annotations

import pytest

from tests.faults.harness import installation


@pytest.fixture
def made(cluster):
    """Return an installation with PostgreSQL running and nothing else."""
    with installation(cluster) as one:
        yield one
