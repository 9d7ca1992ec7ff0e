"""Two tenants use the same cache keys independently."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from steersman.db.answer_cache import AnswerLimits, TableCache, trim_answers
from steersman.db.answer_cache_redis import RedisCache
from steersman.db.tenants import create_tenant
from steersman.errors import StoreError
from tests.db.rows import connected
from tests.kept import run
from tests.redis_server import redis_server

WHO = st.sampled_from([0, 1])
KEYS = st.sampled_from([f"{n:02x}" for n in range(5)])
VALUES = st.integers(1, 100)
SETTINGS = settings(
    max_examples=15,
    stateful_step_count=30,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class TwoTenants(RuleBasedStateMachine):
    """State machine that compares the cache with a model per tenant."""

    def __init__(self, caches):
        super().__init__()
        self.caches = caches()
        self.models = [{}, {}]

    @rule(who=WHO, key=KEYS, value=VALUES)
    def put(self, who, key, value):
        self.caches[who].put(key, np.full((1, 2), value, np.float16))
        self.models[who][key] = value

    @rule(who=WHO, key=KEYS)
    def get(self, who, key):
        found = self.caches[who].get(key)
        assert (None if found is None else found[0, 0]) == self.models[who].get(key)

    def teardown(self):
        for cache, model in zip(self.caches, self.models, strict=True):
            for key in (f"{n:02x}" for n in range(5)):
                assert (cache.get(key) is not None) == (key in model)
            cache.close()


class TwoTenantsOfATable(TwoTenants):
    """State machine that also checks counts, deletes and writes over SQL."""

    def __init__(self, database, caches):
        super().__init__(caches)
        self.database = database
        self.tenants = [cache._tenant for cache in self.caches]

    @rule(who=WHO)
    def count(self, who):
        counts = run(self._seen(who))
        assert counts == (len(self.models[who]), 0)

    async def _seen(self, who):
        async with connected(self.database, "app", self.tenants[who]) as connection:
            return (
                await connection.fetchval("SELECT count(*) FROM answer_cache"),
                await connection.fetchval(
                    "SELECT count(*) FROM answer_cache WHERE tenant = $1", self.tenants[1 - who]
                ),
            )

    @rule(who=WHO)
    def remove_all(self, who):
        run(self._removed(who))
        self.models[who].clear()

    async def _removed(self, who):
        async with connected(self.database, "app", self.tenants[who]) as connection:
            removed = await connection.execute("DELETE FROM answer_cache")
            assert removed == f"DELETE {len(self.models[who])}"

    @rule(who=WHO)
    def trim(self, who):
        run(self._trimmed(who))

    async def _trimmed(self, who):
        async with connected(self.database, "app", self.tenants[who]) as connection:
            assert await trim_answers(connection, AnswerLimits()) == 0

    @rule(who=WHO, key=KEYS, value=VALUES)
    def write_as_the_other(self, who, key, value):
        """The error is the same whether or not the other tenant has the key."""
        assert run(self._written(who, key)) == "InsufficientPrivilegeError"

    async def _written(self, who, key):
        async with connected(self.database, "app") as connection:
            try:
                async with connection.transaction():
                    await connection.execute(
                        "SELECT set_config('app.tenant', $1, true)", str(self.tenants[who])
                    )
                    await connection.execute(
                        "INSERT INTO answer_cache (tenant, key, value) VALUES ($1, $2, 'x') "
                        "ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value",
                        *(self.tenants[1 - who], bytes.fromhex(key)),
                    )
            except Exception as error:  # noqa: BLE001 (its name is the result)
                return type(error).__name__
        return "written"


@pytest.mark.slow
def test_no_tenant_of_postgresql_notices_the_other(database):
    def two():
        made = [run(create_tenant(database, f"t-{uuid4().hex}", actor="test")) for _ in range(2)]
        return [TableCache(database, tenant.id, timeout_s=30) for tenant in made]

    run_state_machine_as_test(partial(TwoTenantsOfATable, database, two), settings=SETTINGS)


@pytest.mark.slow
def test_no_tenant_of_redis_notices_the_other():
    pytest.importorskip("redis")
    with redis_server() as server:

        def two():
            return [RedisCache(server.url, uuid4(), timeout_s=30) for _ in range(2)]

        run_state_machine_as_test(partial(TwoTenants, two), settings=SETTINGS)


def test_an_unknown_tenant_has_no_cache(database):
    with TableCache(database, uuid4()) as cache:
        assert cache.get("ab") is None
        with pytest.raises(StoreError, match="ForeignKeyViolation"):
            cache.put("ab", np.ones((1, 1), np.float16))
