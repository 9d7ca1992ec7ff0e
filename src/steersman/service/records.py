"""Signed decisions: what a client keeps for us while the store cannot.

A record is the row itself, so that storing it later gives exactly what would have been stored; the
signature (HMAC-SHA256 under a key of the tenant's own, derived from the service's secret) keeps
anybody from making up decisions, or carrying one over to another tenant.
"""

from __future__ import annotations

import hmac
from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

import msgspec

from steersman.store import DecisionRow
from steersman.wire import Refused

if TYPE_CHECKING:
    from uuid import UUID

# What a request of 1 MiB may become, whose numbers have seven times as many bytes here ("0.1" is
# 0.10000000149011612 as it is stored, in base64); and still comes back in a body of 8 MiB.
_MAX_BYTES = 15 << 19
_encode = msgspec.json.Encoder(enc_hook=array.tolist).encode
_decode = msgspec.json.Decoder(DecisionRow).decode


def sign(secret: bytes, row: DecisionRow) -> str:
    """Return the record of a row.

    Args:
        secret: the service's.
        row: a decision that was answered and is not known to be stored.

    Returns:
        URL-safe text: payload, a dot, signature.

    Raises:
        Refused: it would be too large to come back: answered, the decision would be lost.

    No doctest: it needs a row; ``tests/service/test_records.py`` shows it.
    """
    # Its key may meanwhile have been given to a retry; the id alone must find this decision.
    payload = urlsafe_b64encode(_encode(row._replace(idempotency_key=None, body_hash=None)))
    record = f"{payload.decode()}.{_signature(secret, row.tenant, payload)}"
    if len(record) > _MAX_BYTES:
        detail = (
            f"the store is late or away, and this decision's record has {len(record)} bytes; "
            f"allowed are {_MAX_BYTES}: ask again later, or offer fewer candidates or numbers"
        )
        raise Refused.of("too_large", detail)
    return record


def verify(secret: bytes, tenant: UUID, record: str) -> DecisionRow:
    """Return the row of a record that this service signed for this tenant.

    Args:
        secret: the service's.
        tenant: who brings the record.
        record: as `sign` returned it.

    Returns:
        The row.

    Raises:
        Refused: too large, not signed by this service, or for another tenant.

    No doctest: it needs a row; ``tests/service/test_records.py`` shows it.
    """
    payload, _, signature = record.partition(".")
    good = len(record) <= _MAX_BYTES and record.isascii()
    if not good or not hmac.compare_digest(signature, _signature(secret, tenant, payload.encode())):
        detail = "this record was not signed by this service for this tenant; send it as it came"
        raise Refused.of("invalid", detail, field="records")
    return _decode(urlsafe_b64decode(payload))


def _signature(secret: bytes, tenant: UUID, payload: bytes) -> str:
    key = hmac.digest(secret, b"record:" + tenant.bytes, "sha256")
    return hmac.digest(key, payload, "sha256").hex()
