"""Personal data never reaches the database, a record or the log; what is learned from fits."""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64decode

import numpy as np

from steersman.db.declarations import declare
from steersman.features import FeatureMap
from steersman.platform.postgres.database import as_tenant
from steersman.points.feature_encoding import encode
from steersman.spec.loader import loads
from steersman.wire import new_id

POINT = """
format: 1
skill: support
decision: route
context:
  dim: 64
  fields: {text: {type: text}, subject: {type: text}, intent: {type: category}}
actions: {kind: choice, names: [micro, planner]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {rules: [], otherwise: planner}
budgets: {deadline_ms: 20000}
reward: {terms: {success: {weight: 1}}}
privacy: {scrub: [email, phone, card, iban, ip]}
"""
SECRETS = [
    "bob@example.org",
    "+49 30 1234567",
    "4111 1111 1111 1111",
    "DE89 3704 0044 0532 0130 00",
    "192.168.1.20",
]
TEXT = " and ".join(SECRETS)
SCRUBBED = "[email] and [phone] and [card] and [iban] and [ip]"
ASK = {
    "skill": "support",
    "decision": "route",
    "context": {"text": TEXT, "subject": f"re: {SECRETS[0]}", "intent": "refund"},
}


async def everything(database, tenant) -> str:
    """Return all rows of all tables of a tenant as text."""
    connection = await database.connect("owner")
    try:
        tables = await connection.fetch(
            "SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_attribute a "
            "ON a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped "
            "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition "
            "AND c.relnamespace = current_schema()::regnamespace"
        )
        assert {"decision", "event", "idempotency"} <= {table["name"] for table in tables}
        async with as_tenant(connection, tenant.id):
            return "\n".join(
                [
                    row["line"]
                    for table in tables
                    for row in await connection.fetch(
                        f"SELECT to_jsonb(t)::text AS line FROM {table['name']} AS t "
                        "WHERE tenant = $1",
                        tenant.id,
                    )
                ]
            )
    finally:
        await connection.close()


async def stored_decision(database, tenant, identifier):
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            return await connection.fetchrow(
                "SELECT context, x FROM decision WHERE id = $1", identifier
            )
    finally:
        await connection.close()


def leaks(said: str) -> list[str]:
    parts = ["bob@", "30 1234567", "1111 1111", "0532 0130", "192.168.1"]  # not by chance in an id
    return [part for part in parts if part in said]


async def test_nothing_of_it_is_stored_or_logged(serving, database, tenant, caplog) -> None:
    caplog.set_level(logging.DEBUG, logger="steersman")
    await declare(database, tenant.id, POINT, actor="test")
    async with serving() as s:
        keyed = {**ASK, "idempotency_key": "k-1"}
        decided = await s.ask("POST", "/v1/decide", keyed)
        assert decided.body["logged"] is True
        about = {"decision_id": decided.body["decision_id"]}
        event = {
            "event_id": "e-1",
            **about,
            "outcomes": {"success": 1},
            "body": {"answer": TEXT, "to": [{SECRETS[0]: {"from": SECRETS[4]}}], "n": 4111},
        }
        first = await s.ask("POST", "/v1/interaction.output", event)
        assert (first.status, first.body["status"]) == (200, "stored")
        local = {
            "decision_id": str(new_id()),
            "skill": "support",
            "decision": "route",
            "action": "planner",
            "context": {**ASK["context"], "not declared": TEXT},
        }
        batch = {
            "events": [{**event, "event_id": "e-2", "type": "task_result"}],
            "records": [local],
        }
        results = (await s.ask("POST", "/v1/events", batch)).body["results"]
        assert [result["status"] for result in results] == ["stored", "stored"]
        wrong = {**ASK, "context": {"other": TEXT, "intent": [TEXT]}}
        assert (await s.ask("POST", "/v1/decide", wrong)).status == 422

        rows = await everything(database, tenant)
        assert SCRUBBED in rows
        assert '"n": 4111' in rows
        assert leaks(rows) == []
        assert leaks(caplog.text) == []

        # The same again is the same: what is compared is what was sent.
        again = await s.ask("POST", "/v1/interaction.output", event)
        assert (again.status, again.body["status"]) == (200, "replayed")
        other = {**event, "body": {**event["body"], "answer": TEXT.replace("bob", "bill")}}
        assert (await s.ask("POST", "/v1/interaction.output", other)).status == 409
        repeated = await s.ask("POST", "/v1/decide", keyed)
        assert repeated.body["decision_id"] == about["decision_id"]
        counted = s.service.metrics.text().decode()
        assert 'steersman_scrubbed_total{kind="iban"' in counted.replace('process="0",', "")


async def test_features_replay_from_what_is_stored(serving, database, tenant) -> None:
    await declare(database, tenant.id, POINT, actor="test")
    async with serving() as s:
        decided = await s.ask("POST", "/v1/decide", ASK)
        row = await stored_decision(database, tenant, decided.body["decision_id"])
        expected = {"text": SCRUBBED, "subject": "re: [email]", "intent": "refund"}
        assert row["context"] == expected
        spec = loads(POINT)
        x, _ = encode(spec, FeatureMap(spec.context), row["context"])
        assert np.array_equal(np.array(row["x"], dtype=np.float64), x)
        raw, _ = encode(spec, FeatureMap(spec.context), ASK["context"])
        assert not np.array_equal(raw, x)


async def test_records_hold_nothing_of_it(serving, database, tenant) -> None:
    await declare(database, tenant.id, POINT, actor="test")
    async with serving() as s:
        assert (await s.ask("POST", "/v1/decide", ASK)).body["logged"] is True
        hurried = await s.ask("POST", "/v1/decide", {**ASK, "deadline_ms": 0.001})
        assert hurried.body["logged"] == "unknown"
        record = hurried.body["record"]
        payload = urlsafe_b64decode(record.partition(".")[0]).decode("latin-1")
        assert SCRUBBED in payload
        assert leaks(payload) == []
        sent = await s.ask("POST", "/v1/events", {"records": [record]})
        assert sent.body["results"][0]["status"] in {"stored", "replayed"}
        assert leaks(await everything(database, tenant)) == []


async def test_a_process_that_hears_of_events_first_knows_what_to_take_out(
    serving, database, tenant
) -> None:
    await declare(database, tenant.id, POINT, actor="test")
    async with serving() as s:
        decided = await s.ask("POST", "/v1/decide", ASK)
    async with serving() as s:
        event = {"event_id": "e", "decision_id": decided.body["decision_id"], "body": {"a": TEXT}}
        assert (await s.ask("POST", "/v1/task_result", event)).body["status"] == "stored"
    rows = await everything(database, tenant)
    assert leaks(rows) == []
    assert rows.count(SCRUBBED) == 2


async def test_bodies_are_scrubbed_of_what_another_point_of_the_tenant_declares(
    serving, database, tenant
) -> None:
    """An event does not say which point it is about."""
    await declare(database, tenant.id, POINT, actor="test")
    async with serving() as s:
        depth = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}
        decided = await s.ask("POST", "/v1/decide", depth)
        event = {"event_id": "e", "decision_id": decided.body["decision_id"], "body": {"a": TEXT}}
        assert (await s.ask("POST", "/v1/task_result", event)).body["status"] == "stored"
    assert leaks(await everything(database, tenant)) == []


async def test_declaring_it_takes_effect_in_a_running_service_and_keeps_the_snapshot(
    serving, database, tenant
) -> None:
    plain, _, _ = POINT.partition("privacy:")
    before = await declare(database, tenant.id, plain, actor="test")
    async with serving() as s:
        first = await s.ask("POST", "/v1/decide", ASK)
        row = await stored_decision(database, tenant, first.body["decision_id"])
        assert row["context"]["text"] == TEXT
        after = await declare(database, tenant.id, POINT, actor="test")
        assert (after.snapshot, after.feature_hash) == (before.snapshot, before.feature_hash)
        for _ in range(100):
            decided = await s.ask("POST", "/v1/decide", ASK)
            row = await stored_decision(database, tenant, decided.body["decision_id"])
            if row["context"]["text"] == SCRUBBED:
                break
            await asyncio.sleep(0.1)
        assert row["context"]["text"] == SCRUBBED
