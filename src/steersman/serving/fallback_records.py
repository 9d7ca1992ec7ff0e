"""Signed decision records, which clients keep while the store is down.

A record is the row itself, so that storing it later gives the same row. Its long number columns are
packed in four bytes each, after all other fields in JSON. The signature (HMAC-SHA256 with a key per
tenant, derived from the service's secret) prevents forged decisions and transfers between tenants.
"""

from __future__ import annotations

import hmac
from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from steersman.db.decisions import DecisionRow
from steersman.wire import Refused

if TYPE_CHECKING:
    from uuid import UUID

# Large enough for the record of a request of 1 MiB: its numbers grow from 2 or 3 bytes ("1,") to 6
# (float32 in base64), and every step repeats names. Small enough for a request body of 8 MiB.
_MAX_BYTES = 15 << 19
_NUMBERS = ("distribution", "x", "features")
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(tuple[DecisionRow, dict[str, int]]).decode
_decode_older = msgspec.json.Decoder(DecisionRow).decode


def sign(secret: bytes, row: DecisionRow) -> str:
    """Return the record of a decision that is not known to be stored.

    Raises:
        Refused: the record would be too large to be sent back.
    """
    # Without the key, because a retry may use it meanwhile; the id identifies this decision.
    payload = urlsafe_b64encode(_packed(replace(row, idempotency_key=None, body_hash=None)))
    record = f"{payload.decode()}.{_signature(secret, row.tenant, payload)}"
    if len(record) > _MAX_BYTES:
        detail = (
            f"the store does not respond, and the record of this decision has {len(record)} "
            f"bytes; at most {_MAX_BYTES} are allowed: try again later, or send fewer candidates "
            "or numbers"
        )
        raise Refused.of("too_large", detail)
    return record


def verify(secret: bytes, tenant: UUID, record: str) -> DecisionRow:
    """Return the row of a record that this service signed for this tenant.

    Raises:
        Refused: the record is too large, has another signature or tenant, or another version of the
            service packed it; in that case the client should retry later.
    """
    payload, _, signature = record.partition(".")
    good = len(record) <= _MAX_BYTES and record.isascii()
    if not good or not hmac.compare_digest(signature, _signature(secret, tenant, payload.encode())):
        detail = "invalid record: not signed by this service for this tenant; send it unchanged"
        raise Refused.of("invalid", detail, field="records")
    try:
        return _unpacked(urlsafe_b64decode(payload))
    except (ValueError, TypeError, KeyError) as error:  # a newer version signed it during an update
        detail = "this record was signed by another version of the service: "
        raise Refused.of(
            "unavailable", detail + "send it again later", retry_after_s=30.0
        ) from error


def _packed(row: DecisionRow) -> bytes:
    held = {name: getattr(row, name) for name in _NUMBERS}
    columns = {name: array("f", one) for name, one in held.items() if one is not None}
    counts = {name: len(column) for name, column in columns.items()}
    rest = replace(row, distribution=[], x=None, features=None)
    # JSON contains no zero byte, so the first one ends it.
    return b"\0".join((_encode((rest, counts)), b"".join(map(bytes, columns.values()))))


def _unpacked(content: bytes) -> DecisionRow:
    head, separator, raw = content.partition(b"\0")
    if not separator:  # an earlier version signed it, with all numbers in JSON
        return _decode_older(head)
    row, counts = _decode(head)
    numbers = array("f", raw)
    columns: dict[str, array[float]] = {}
    for name, count in counts.items():
        columns[name], numbers = numbers[:count], numbers[count:]
    distribution = columns["distribution"].tolist()
    x, features = columns.get("x"), columns.get("features")
    return replace(row, distribution=distribution, x=x, features=features)


def _signature(secret: bytes, tenant: UUID, payload: bytes) -> str:
    key = hmac.digest(secret, b"record:" + tenant.bytes, "sha256")
    return hmac.digest(key, payload, "sha256").hex()
