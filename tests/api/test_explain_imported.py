"""A decision of an imported log explains itself with what is known of it, and nothing more."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from steersman.db.decisions import log_decisions
from steersman.db.points import points_of
from tests.db.rows import connected, decision_of


@pytest.mark.parametrize("query", ["", "?recompute=true"])
@pytest.mark.parametrize(
    ("changes", "distribution"),
    [
        ({}, {"deep": 0.5}),
        ({"eligible": ["deep", "shallow"]}, {"deep": 0.5}),
        ({"eligible": ["deep"]}, {"deep": 0.5}),
        ({"p": None, "p_kind": "none"}, {}),
        ({"p": None, "p_kind": "none", "eligible": ["deep", "shallow"]}, {}),
    ],
    ids=["p", "p-eligible", "p-alone", "nothing", "nothing-eligible"],
)
async def test_what_an_imported_log_never_said_is_unknown(
    serving, database, tenant, query, changes, distribution
) -> None:
    async with serving() as s:
        async with connected(database, "app", tenant.id) as connection:
            (row,) = await points_of(connection, tenant.id)
        imported = decision_of(row, {"intent": "a"}, "deep", at=time.time() - 99, p=0.5)
        imported = replace(
            imported,
            **{"distribution": [], "p_kind": "imported", "snapshot": "imported", **changes},
        )
        async with connected(database) as connection:
            await log_decisions(connection, [imported])
        answer = await s.ask("GET", f"/v1/decisions/{imported.id}/explain{query}")
        assert answer.status == 200, answer.body
        assert answer.body.get("distribution", {}) == distribution
        assert answer.body["propensity_kind"] == imported.p_kind
        if query:
            assert answer.body["recomputed"]["same"] is False
            assert imported.p_kind in answer.body["recomputed"]["reason"]
