"""One installation per test: what a test breaks, no other test meets."""

from __future__ import annotations

import pytest

from tests.faults.harness import installation, stopped_cluster


@pytest.fixture(scope="session")
def cluster():
    """Return a cluster to copy: what initdb and migrations do is the same every time."""
    with stopped_cluster() as one:
        yield one


@pytest.fixture
def made(cluster):
    """Return an installation with PostgreSQL running and nothing else."""
    with installation(cluster) as one:
        yield one
