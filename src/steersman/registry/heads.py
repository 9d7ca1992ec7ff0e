"""The head of the audit log among signed targets, and when another may take its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import InputError, VerificationError

if TYPE_CHECKING:
    from tuf.api.metadata import Targets

_FIELD = "audit"
_HASH_BYTES = 32


def signed_head(targets: Targets) -> tuple[int, bytes] | None:
    """Return number and hash of the entry that was signed; None if none was.

    Args:
        targets: verified.

    Raises:
        VerificationError: what was signed is no head.
    """
    signed = targets.unrecognized_fields.get(_FIELD)
    if signed is None:
        return None
    try:
        return int(signed["seq"]), bytes.fromhex(signed["hash"])
    except (TypeError, KeyError, ValueError) as error:
        message = f"the signed head of the audit log is no head: {signed!r:.200}; sign it anew"
        raise VerificationError(message) from error


def put_head(targets: Targets, seq: int, digest: bytes, *, restored: bool) -> bool:
    """Put the head of the audit log among targets that are to be signed.

    Args:
        targets: are changed.
        seq: of the newest entry, >= 1.
        digest: its hash, 32 bytes.
        restored: whether it may take the place of one that it does not follow.

    Returns:
        Whether anything changed.

    Raises:
        InputError: a number or hash out of range.
        VerificationError: a later entry was signed before, or another hash of this one.
    """
    if seq < 1 or len(digest) != _HASH_BYTES:
        message = f"entry {seq} with a hash of {len(digest)} bytes; allowed are >= 1 and 32"
        raise InputError(message)
    head: dict[str, Any] = {"hash": digest.hex(), "seq": seq}
    signed = targets.unrecognized_fields.get(_FIELD)
    before: dict[str, Any] = signed or head
    follows = before["seq"] < seq or before == head
    if not follows and not restored:
        message = (
            f"entry {seq} ({head['hash'][:12]}) does not follow the signed entry "
            f"{before['seq']} ({before['hash'][:12]}): the audit log was shortened or "
            "rewritten; run `steersman audit verify`"
        )
        raise VerificationError(message)
    targets.unrecognized_fields[_FIELD] = head
    return bool(signed != head)
