"""Fixtures of the store tests: a separate database and its cold store."""

from __future__ import annotations

from uuid import uuid4

import pytest

from steersman.db.migrate import migrate
from steersman.db.tenants import create_tenant
from tests.db.days import Days
from tests.db.test_backup import execute, on
from tests.kept import kept, run


@pytest.fixture(scope="module")
def apart(database):
    """Return a separate database, because these tests drop days of all tenants."""
    name = f"retention_{uuid4().hex[:12]}"
    run(execute(database, f"CREATE DATABASE {name}"))
    with kept(on(database, name)) as made:
        run(migrate(made))
        yield made
    run(execute(database, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="module")
def cold_folder(tmp_path_factory):
    """Return one cold store for all tests, because each database has one."""
    return tmp_path_factory.mktemp("cold")


@pytest.fixture
def days(apart, cold_folder):
    tenant = run(create_tenant(apart, f"t-{uuid4().hex}", actor="test"))
    made = Days(apart, tenant, cold_folder)
    run(made.make())
    yield made
    run(made.drop())
