"""A candidate whose rows the store refuses: callers get an error, no row tells, the metrics do."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

from tests.api.rollouts import DECIDE
from tests.api.test_serving_rollouts import ask_units, prepared, rows_of, staged

UNITS = [f"u{n}" for n in range(200)]


@asynccontextmanager
async def refused(database, tenant):
    """Let the database take no row that this tenant's candidate drew."""
    connection = await database.connect("owner")
    rule = f"CHECK (tenant <> '{tenant.id}' OR arm <> 'candidate') NOT VALID"
    try:
        await connection.execute(f"ALTER TABLE decision ADD CONSTRAINT no_candidates {rule}")
        yield
    finally:
        await connection.execute("ALTER TABLE decision DROP CONSTRAINT no_candidates")
        await connection.close()


async def counted(s):
    text = (await s.ask("GET", "/metrics", key=None)).body.decode()
    lines = re.findall(r"^steersman_arm_decisions_total{(.*)} ([\d.]+)$", text, re.MULTILINE)
    return {
        (re.search('arm="(.*?)"', labels)[1], re.search('result="(.*?)"', labels)[1]): float(n)
        for labels, n in lines
    }


async def test_they_are_counted_as_the_candidates_and_nobodys_else(
    database, tenant, serving
) -> None:
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        await ships.start(version, "ab", 0.5)
        await staged(s, "ab", "candidate")
        before, rows = await counted(s), await rows_of(database, tenant)
        async with refused(database, tenant):
            answers = await ask_units(s, UNITS)
        lost = [one for one in answers if "decision_id" not in one]
        assert 60 < len(lost) < 140
        assert all("cannot be stored" in str(one) for one in lost)
        after = await counted(s)
        assert after["candidate", "unstored"] == len(lost)
        assert after["candidate", "ok"] - before["candidate", "ok"] == len(lost)
        assert after["control", "ok"] - before["control", "ok"] == len(UNITS) - len(lost)
        assert {result for (arm, result), n in after.items() if arm == "control" and n} == {"ok"}
        assert len(await rows_of(database, tenant)) - len(rows) == len(UNITS) - len(lost)


async def test_those_that_were_answered_as_unknown_are_counted_too(
    database, tenant, serving
) -> None:
    hurry = {**DECIDE, "deadline_ms": 0.001}
    async with serving() as s:
        ships, version = await prepared(s, database, tenant)
        await ships.start(version, "ab", 0.5)
        await staged(s, "ab", "candidate")
        async with refused(database, tenant):
            told = []
            for more in ({}, {"idempotency_key": "k-"}):
                batch = [{**hurry, "unit": u} | {k: v + u for k, v in more.items()} for u in UNITS]
                answer = await s.ask("POST", "/v1/decide", {"requests": batch})
                told += answer.body["decisions"]
            unsure = [one for one in told if one.get("logged") == "unknown"]
            candidates = sum(one["arm"] == "candidate" for one in unsure)
            assert candidates > 0
            await s.until(lambda: s.service.decisions.depth == 0)
        after = await counted(s)
        assert after["candidate", "unstored"] == candidates + len(refusals(told))
        assert {result for (arm, result), n in after.items() if arm == "control" and n} == {"ok"}


def refusals(told):
    return [one for one in told if "decision_id" not in one]
