"""``learn rebuild``: decisions dropped by retention are reported; --keep-unseen keeps them."""

import time

import numpy as np
import pytest

from steersman.db.tenants import create_tenant
from tests.db.rows import connected
from tests.kept import run
from tests.learning.world import decided, declared, happened, learn_all, write

NAME = "relearns"


@pytest.fixture(scope="module")
def gone(command, database):
    """Five decisions of a bot that were learned; the rows of the first two are gone."""
    return run(_learned(database))


async def _learned(database):
    tenant = await create_tenant(database, NAME, actor="test")
    row, rng = await declared(database, tenant.id), np.random.default_rng(0)
    made = [decided(row, rng, at=time.time() - 3600 + i, unit="bot-7") for i in range(5)]
    await write(database, made, [happened(one, {"success": 1.0}) for one in made])
    await learn_all(database)
    ids = [one.id for one in made[:2]]
    async with connected(database, "owner", tenant.id) as connection:
        for table, column in (("event", "decision"), ("reward", "decision"), ("decision", "id")):
            await connection.execute(f"DELETE FROM {table} WHERE {column} = ANY($1)", ids)
    return ids


def test_what_a_condition_cannot_see_is_told_named_or_kept(command, gone):
    rebuild = "learn", "rebuild", "search", "depth", "--tenant", NAME
    bot = "--exclude", "unit = 'bot-7'"
    said = command(*rebuild, *bot, status=1)
    assert "cannot check 2 updates" in said
    assert "--exclude-decision" in said
    assert "Traceback" not in said
    made = command.json(*rebuild, *bot, "--exclude-decision", gone[0], "--keep-unseen")
    assert (made["kept"], made["excluded"], made["unseen"]) == (1, 4, 1)
    made = command.json(*rebuild, "--exclude-decision", gone[1])
    assert (made["kept"], made["excluded"], made["unseen"]) == (0, 1, 0)
    command(*rebuild, "--exclude-decision", "bot-7", status=2)
