"""Signed head of the audit log among the targets, and the rules to replace it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import InputError, VerificationError

if TYPE_CHECKING:
    from tuf.api.metadata import Targets

_FIELD = "audit"
_HASH_BYTES = 32


def signed_head(targets: Targets) -> tuple[int, bytes] | None:
    """Return sequence number and hash of the signed head; None if there is none.

    Raises:
        VerificationError: the signed value is not a valid head.
    """
    signed = targets.unrecognized_fields.get(_FIELD)
    if signed is None:
        return None
    try:
        return int(signed["seq"]), bytes.fromhex(signed["hash"])
    except (TypeError, KeyError, ValueError) as error:
        message = f"invalid signed head of the audit log: {signed!r:.200}; sign it again"
        raise VerificationError(message) from error


def put_head(targets: Targets, seq: int, digest: bytes, *, restored: bool) -> bool:
    """Set the head of the audit log in targets; return whether they changed.

    Args:
        seq: sequence number of the newest entry, >= 1.
        digest: its hash, 32 bytes.

    Raises:
        InputError: a number or hash is out of range.
        VerificationError: a later entry, or another hash of this entry, is already signed.
    """
    if seq < 1 or len(digest) != _HASH_BYTES:
        message = (
            f"entry {seq} with a hash of {len(digest)} bytes; expected an entry >= 1 and 32 bytes"
        )
        raise InputError(message)
    head: dict[str, Any] = {"hash": digest.hex(), "seq": seq}
    signed = targets.unrecognized_fields.get(_FIELD)
    before: dict[str, Any] = signed or head
    follows = before["seq"] < seq or before == head
    if not follows and not restored:
        message = (
            f"entry {seq} ({head['hash'][:12]}) does not follow the signed entry "
            f"{before['seq']} ({before['hash'][:12]}): the audit log was truncated or "
            "rewritten; run `steersman audit verify`"
        )
        raise VerificationError(message)
    targets.unrecognized_fields[_FIELD] = head
    return bool(signed != head)
