"""Every test has what is under way for itself: controllers look at all tenants."""

import pytest

from steersman.platform.postgres.database import as_tenant
from tests.kept import run


@pytest.fixture(autouse=True)
def _nothing_of_others(request):
    if "database" not in request.fixturenames:
        return
    database = request.getfixturevalue("database")

    async def clear():
        connection = await database.connect("worker")
        for tenant, rollout in await connection.fetch("SELECT tenant, rollout FROM rollout_task"):
            async with as_tenant(connection, tenant):
                await connection.execute(
                    "UPDATE rollout SET status = 'aborted', ended_at = now() WHERE id = $1", rollout
                )
                await connection.execute("DELETE FROM rollout_task WHERE rollout = $1", rollout)
        await connection.close()

    run(clear())
