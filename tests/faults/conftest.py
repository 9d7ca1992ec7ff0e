"""One installation per test: what a test breaks, no other test meets."""

from __future__ import annotations

import pytest

from steersman.platform.postgres.database import Database
from tests.faults.harness import installation


@pytest.fixture(scope="session")
def database(database):
    """Return it without connections that are kept: what is broken here was opened here."""
    return Database(database.url, database.server)


@pytest.fixture
def made(cluster):
    """Return an installation with PostgreSQL running and nothing else."""
    with installation(cluster) as one:
        yield one
