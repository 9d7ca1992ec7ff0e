"""Tests that learn wait until nothing is due, so nothing may be due that other tests left."""

import pytest

from tests.kept import run
from tests.learn.shipping_world import registry_of


@pytest.fixture
def signer(tmp_path):
    return lambda tenant: registry_of(tmp_path, tenant)


@pytest.fixture(autouse=True)
def _no_work_of_others(request):
    if "database" not in request.fixturenames:
        return
    database = request.getfixturevalue("database")

    async def clear():
        connection = await database.connect("worker")
        await connection.execute("DELETE FROM work")
        await connection.close()

    run(clear())
