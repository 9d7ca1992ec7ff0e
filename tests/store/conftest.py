"""What tests of the store share: a database whose days may be dropped, and its cold store."""

from __future__ import annotations

from uuid import uuid4

import pytest

from steersman.store import create_tenant, migrate
from tests.kept import kept, run
from tests.store.days import Days
from tests.store.test_backup import execute, on


@pytest.fixture(scope="module")
def apart(database):
    """Return a database of these tests' own: they drop days of whoever has rows there."""
    name = f"retention_{uuid4().hex[:12]}"
    run(execute(database, f"CREATE DATABASE {name}"))
    with kept(on(database, name)) as made:
        run(migrate(made))
        yield made
    run(execute(database, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="module")
def cold_folder(tmp_path_factory):
    """Return one for all: a database has one cold store, and every tenant's files are looked at."""
    return tmp_path_factory.mktemp("cold")


@pytest.fixture
def days(apart, cold_folder):
    tenant = run(create_tenant(apart, f"t-{uuid4().hex}", actor="test"))
    made = Days(apart, tenant, cold_folder)
    run(made.make())
    yield made
    run(made.drop())
