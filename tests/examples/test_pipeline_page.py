"""The commands of docs/how-to/run-the-pipeline.md, typed one after the other into a shell."""

import asyncio
import re
from pathlib import Path

import pytest

from steersman.db.declarations import declare
from steersman.db.tenants import create_tenant
from steersman.platform.postgres.database import Database
from steersman_systems.assistant.points import point_documents
from tests.examples.pages import commands, environment, type_in
from tests.learning.shipping_world import PASSPHRASE
from tests.learning.world import learn_all
from tests.rollouts.pipeline.world import traffic

PAGE = Path("docs/how-to/run-the-pipeline.md")


async def _logged(database):
    tenant = await create_tenant(database, "sample", actor="test")
    rows = [await declare(database, tenant.id, text, actor="test") for text in point_documents()]
    await traffic(database, rows[1], 3000)
    await learn_all(database)


@pytest.fixture
def running(home):
    """A home whose server runs, with three thousand routed requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        database = Database.open(home)
        asyncio.run(_logged(database))
        yield home
        database.server.stop()


@pytest.mark.slow
def test_every_command_of_the_page_works(running, tmp_path):
    ours = environment(running, STEERSMAN_ROOT_PASSPHRASE=PASSPHRASE)
    told = "\n".join(type_in(command, ours, tmp_path) for command in commands(PAGE))
    assert "refused by max_standard_error" in told
    assert re.search(r"route +package +done +published 0\.2\.1", told)
    assert re.search(r"route +promote +waits", told)
    assert "status 1" in told
    assert re.search(r"status +aborted", told)
