"""Review list: filing, isolation and verdicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

from steersman.db.audit import history
from steersman.db.reviews import file_for_review, find_review, resolve_review, reviews_of
from steersman.db.tenants import create_tenant
from steersman.errors import StateError
from tests.db.rows import connected

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


async def filed(database, tenant, subject="run/a/1/q1", at=NOW, role="owner", **changes):
    given = {
        "detector": "personal_data",
        "kinds": ["card", "email", "card"],
        "score": 1.0,
        "excerpt": "My card is [card]",
    } | changes
    async with connected(database, role, tenant) as connection:
        return await file_for_review(connection, tenant, subject=subject, at=at, **given)


async def listed(database, tenant, **options):
    async with connected(database, "app", tenant) as connection:
        return await reviews_of(connection, tenant, **options)


async def test_what_one_detector_says_of_one_subject_is_filed_once(database, tenant):
    assert await filed(database, tenant.id)
    assert not await filed(database, tenant.id, score=0.5)
    assert await filed(database, tenant.id, detector="toxicity", at=NOW + timedelta(hours=1))
    first, second = await listed(database, tenant.id)
    assert (first.kinds, first.score, first.verdict) == (("card", "email"), 1.0, None)
    assert (first.excerpt, second.detector) == ("My card is [card]", "toxicity")
    assert await listed(database, tenant.id, limit=1) == [first]


async def test_what_postgresql_does_not_take_keeps_nothing_from_being_filed(database, tenant):
    assert await filed(database, tenant.id, "run/\ud800/q1", excerpt="a\0b\udfff")
    assert not await filed(database, tenant.id, "run/\ud800/q1")
    (item,) = await listed(database, tenant.id)
    assert (item.subject, item.excerpt) == ("run/?/q1", "a?b?")


async def test_whoever_serves_files_and_says_nothing_of_what_a_person_says(database, tenant):
    assert await filed(database, tenant.id, role="app")
    assert not await filed(database, tenant.id, role="app")
    (item,) = await listed(database, tenant.id)
    for change in (
        "UPDATE review SET verdict = 'dismissed', resolved_at = now(), resolved_by = 'me'",
        "DELETE FROM review",
        """INSERT INTO review (tenant, id, at, detector, kinds, score, subject, excerpt, note)
        SELECT tenant, gen_random_uuid(), at, detector, kinds, score, 'b', excerpt, 'mine'
        FROM review""",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with connected(database, "app", tenant.id) as connection:
                await connection.execute(change)
    assert await listed(database, tenant.id) == [item]


async def test_a_person_has_the_last_word_and_it_is_audited(database, tenant):
    await filed(database, tenant.id)
    (item,) = await listed(database, tenant.id)
    async with connected(database, "owner", tenant.id) as connection:
        said = await resolve_review(
            connection, tenant.id, item.id, verdict="dismissed", note="a test card", actor="eve",
            at=NOW,
        )  # fmt: skip
        assert (said.verdict, said.note, said.resolved_by) == ("dismissed", "a test card", "eve")
        assert await find_review(connection, tenant.id, item.id) == said
        rows = await history(connection)
    assert await listed(database, tenant.id) == []
    assert await listed(database, tenant.id, open_only=False) == [said]
    (audited,) = [row for row in rows if row.action == "review.resolve"]
    assert audited.detail == {"verdict": "dismissed", "note": "a test card"}


async def test_another_tenants_items_are_not_there(database, tenant):
    other = await create_tenant(database, f"o-{uuid4().hex[:8]}", actor="test")
    await filed(database, tenant.id)
    assert await listed(database, other.id) == []
    (item,) = await listed(database, tenant.id)
    for role in ("app", "owner"):
        async with connected(database, role, other.id) as connection:
            with pytest.raises(StateError, match="review item not found"):
                await find_review(connection, other.id, item.id)
            with pytest.raises(
                StateError, match="review item not found"
            ):  # even by the other's own id
                await find_review(connection, tenant.id, item.id)
    async with connected(database, "owner", other.id) as connection:
        with pytest.raises(StateError, match="review item not found"):
            await resolve_review(
                connection, other.id, item.id, verdict="confirmed", note="", actor="x", at=NOW
            )
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with connected(database, "owner", other.id) as connection:
            await file_for_review(
                connection, tenant.id, detector="d", kinds=[], score=0.1, subject="s", excerpt="",
                at=NOW,
            )  # fmt: skip


@pytest.mark.parametrize(
    "statement",
    ["UPDATE review SET verdict = 'dismissed'", "DELETE FROM review",
     "INSERT INTO review SELECT * FROM review"],
)  # fmt: skip
async def test_the_service_only_reads(database, tenant, statement):
    await filed(database, tenant.id)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with connected(database, "app", tenant.id) as connection:
            await connection.execute(statement)
