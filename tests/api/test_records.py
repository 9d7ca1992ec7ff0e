"""Signed records: what was signed comes back as it was, and nobody else can make or change one."""

from __future__ import annotations

import hmac
import os
import time
from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any
from uuid import UUID, uuid4

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from steersman.db.secret import load_secret
from steersman.platform.http.messages import converted
from steersman.serving import event_intake as intake
from steersman.serving.fallback_records import sign, verify
from steersman.wire import Refused, new_id
from tests.db.rows import decision

SECRET = os.urandom(32)
KEYED = {"idempotency_key": "k", "body_hash": b"0123456789abcdef"}


def test_what_was_signed_comes_back_without_the_key_that_a_retry_may_have_got() -> None:
    row = decision(uuid4(), **KEYED)
    back = verify(SECRET, row.tenant, sign(SECRET, row))
    assert (back.idempotency_key, back.body_hash) == (None, None)
    assert repr(back) == repr(verify(SECRET, row.tenant, sign(SECRET, back)))
    for name in ("id", "skill", "point", "context", "action", "p", "at", "window_ends", "stage"):
        assert getattr(back, name) == getattr(row, name)


def test_columns_of_numbers_take_four_bytes_each_and_come_back_to_the_bit() -> None:
    numbers = array("f", np.random.default_rng(0).normal(size=9_000))
    row = decision(
        uuid4(), x=numbers[:40], features=numbers, distribution=[0.25, float(numbers[0])]
    )
    record = sign(SECRET, row)
    assert len(record) < 9_100 * 4 * 4 / 3 + 2_000
    back = verify(SECRET, row.tenant, record)
    assert (back.x, back.features, back.distribution) == (row.x, numbers, row.distribution)


def test_a_record_of_an_earlier_version_is_still_good() -> None:
    row = decision(uuid4())
    record = _signed(SECRET, row.tenant, msgspec.json.encode(row))
    assert verify(SECRET, row.tenant, record).distribution == row.distribution


def _signed(secret: bytes, tenant: UUID, content: bytes) -> str:
    payload = urlsafe_b64encode(content)
    key = hmac.digest(secret, b"record:" + tenant.bytes, "sha256")
    return f"{payload.decode()}.{hmac.digest(key, payload, 'sha256').hex()}"


@pytest.mark.parametrize("content", [b"[]", b"[[1,2],{}]\0", b"\0\0\0\0\0", b"\xff"])
def test_a_record_of_a_later_version_is_to_be_kept_until_that_is_back(content) -> None:
    tenant = uuid4()
    with pytest.raises(Refused, match="another version") as refused:
        verify(SECRET, tenant, _signed(SECRET, tenant, content))
    assert refused.value.problem.status == 503


def test_what_could_not_come_back_is_refused_before_anybody_relies_on_it() -> None:
    row = decision(uuid4())
    large = replace(row, context={"text": "a" * 5_800_000})
    assert verify(SECRET, row.tenant, sign(SECRET, large)).context == large.context
    with pytest.raises(Refused, match="try again later"):
        sign(SECRET, replace(row, context={"text": "a" * 5_900_000}))


def _changed(record: str, old: bytes, new: bytes) -> str:
    payload, _, signature = record.partition(".")
    text = urlsafe_b64decode(payload)
    assert old in text
    return f"{urlsafe_b64encode(text.replace(old, new)).decode()}.{signature}"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record[:0],
        lambda record: record[:0] + ".",
        lambda record: record[:-1],
        lambda record: record[1:],
        lambda record: record + "0",
        lambda record: record.upper(),
        lambda record: record.replace(".", "..", 1),
        lambda record: record.partition(".")[0],
        lambda record: record.partition(".")[0] + ".é",
        lambda record: "é" + record,
        lambda record: _changed(record, b'"live"', b'"dead"'),
        lambda record: "A" * (1 << 20) + record,
    ],
)
def test_nothing_that_was_not_signed_like_this_is_taken(spoil) -> None:
    row = decision(uuid4())
    with pytest.raises(Refused) as refused:
        verify(SECRET, row.tenant, spoil(sign(SECRET, row)))
    assert refused.value.problem.status == 422


def test_a_record_is_good_for_its_tenant_and_its_installation_alone() -> None:
    row = decision(uuid4())
    record = sign(SECRET, row)
    for secret, tenant in ((SECRET, uuid4()), (os.urandom(32), row.tenant)):
        with pytest.raises(Refused):
            verify(secret, tenant, record)
    # Naming the other tenant within it needs the key under which that one's are signed.
    forged = _changed(record, str(row.tenant).encode(), str(other := uuid4()).encode())
    with pytest.raises(Refused):
        verify(SECRET, other, forged)


async def test_over_http_a_forged_record_is_refused_and_a_good_one_stored_once(
    serving, tenant
) -> None:
    async with serving() as s:
        served = (await s.ask("POST", "/v1/decide", {"skill": "search", "decision": "depth"})).body
        row = s.service.replicas.find(tenant.id, "search", "depth").replica.row
        late = decision(
            tenant.id,
            id=new_id(),
            skill="search",
            point="depth",
            action=served["action"],
            distribution=list(served["distribution"].values()),
            p=served["propensity"],
            spec_hash=row.spec_hash,
            feature_hash=row.feature_hash,
        )
        good = sign(load_secret(s.home), late)
        forged = sign(SECRET, replace(late, id=new_id()))
        asked = {"records": [forged, good, good]}
        results = (await s.ask("POST", "/v1/events", asked)).body["results"]
        assert [one["status"] for one in results] == ["refused", "stored", "stored"]
        assert results[0]["problem"]["field"] == "records"
        explained = await s.ask("GET", f"/v1/decisions/{late.id}/explain")
        assert (explained.status, explained.body["action"]) == (200, late.action)


async def test_a_record_that_cannot_be_taken_holds_up_no_other(
    serving, tenant, monkeypatch, caplog
) -> None:
    async with serving() as s:
        local = {"skill": "search", "decision": "depth", "action": "deep"}
        records = [
            _signed(load_secret(s.home), tenant.id, b"[]"),
            {**local, "decision_id": str(new_id()), "unit": "raise"},
            {**local, "decision_id": str(new_id())},
        ]

        def fail(local: Any, kind: Any) -> Any:
            if local.get("unit") == "raise":
                raise LookupError("nobody thought of it")
            return converted(local, kind)

        monkeypatch.setattr(intake, "converted", fail)
        answer = await s.ask("POST", "/v1/events", {"records": records})
        assert answer.status == 200, answer
        told = [one.get("problem", {}).get("status") for one in answer.body["results"]]
        assert told == [503, 500, None]
        assert "a record cannot be stored" in caplog.text


async def test_what_a_client_decided_itself_keeps_all_that_it_belongs_to(serving) -> None:
    async with serving() as s:
        parent = (await s.ask("POST", "/v1/decide", {"skill": "search", "decision": "depth"})).body
        local = {
            "decision_id": str(new_id()),
            "skill": "search",
            "decision": "depth",
            "action": "deep",
            "context": {"intent": "refund"},
            "episode_id": "e",
            "parent_id": parent["decision_id"],
            "unit": "u",
        }
        (result,) = (await s.ask("POST", "/v1/events", {"records": [local]})).body["results"]
        assert result["status"] == "stored"
        told = (await s.ask("GET", f"/v1/decisions/{local['decision_id']}/explain")).body
        assert {name: told[name] for name in local} == local
        assert (told["propensity_kind"], told["weight"], told["degraded"]) == ("client", 0.0, True)


async def test_an_id_that_another_decision_has_is_refused(serving) -> None:
    async with serving() as s:
        made = (await s.ask("POST", "/v1/decide", {"skill": "search", "decision": "depth"})).body
        one = {
            "decision_id": str(new_id()),
            "skill": "search",
            "decision": "depth",
            "action": "deep",
        }
        records = [
            one,
            {**one, "decision_id": str(new_id())},
            {**one, "decision_id": made["decision_id"], "action": made["action"]},
            one,
            {**one, "action": "shallow"},
        ]
        results = (await s.ask("POST", "/v1/events", {"records": records})).body["results"]
        told = [result.get("problem", {}).get("detail") for result in results]
        assert told[:2] == [None, None]
        assert told[3] is None
        for detail in (told[2], told[4]):
            assert "the id of another decision; use a new id" in detail
        again = (await s.ask("POST", "/v1/events", {"records": records[:2]})).body["results"]
        assert [result["status"] for result in again] == ["stored", "stored"]
        for identifier, action in (
            (one["decision_id"], "deep"),
            (made["decision_id"], made["action"]),
        ):
            kept = (await s.ask("GET", f"/v1/decisions/{identifier}/explain")).body
            assert kept["action"] == action


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0])
async def test_what_was_erased_does_not_come_back_by_its_record(serving, ahead_s) -> None:
    """A client sends again at once, or its clock is ahead: the record is as young as new ones."""
    local = {
        "decision_id": str(new_id(time.time() + ahead_s)),
        "skill": "search",
        "decision": "depth",
        "context": {"intent": "my secret"},
        "action": "deep",
        "unit": "user-17",
    }
    explain = f"/v1/decisions/{local['decision_id']}/explain"
    async with serving() as s:
        sent = (await s.ask("POST", "/v1/events", {"records": [local]})).body["results"]
        assert [one["status"] for one in sent] == ["stored"]
        assert (await s.ask("GET", explain)).body["context"] == {"intent": "my secret"}
        asked = {"unit": "user-17", "reason": "asked for"}
        assert (await s.ask("POST", "/v1/units/erase", asked)).status == 200
        await s.ask("POST", "/v1/events", {"records": [local]})
        assert "my secret" not in str((await s.ask("GET", explain)).body)
        found = await s.ask("POST", "/v1/units/export", {"unit": "user-17"})
        assert "my secret" not in str(found.body)
