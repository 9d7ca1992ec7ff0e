"""Results of a consumer: a loaded state, and the signed head of the audit log."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from steersman.errors import InputError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.registry.chain import Chain
    from steersman.registry.description import Description

    State = Mapping[str, NDArray[Any]]
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


@dataclass(frozen=True, eq=False)
class LoadedSnapshot:
    """A verified policy state, or a fallback.

    Attributes:
        state: arrays by name, checked.
        description: signed description; None for a warm start and a prior.
        source: ``"registry"`` (verified now), ``"cache"`` (verified earlier), ``"warm_start"`` or
            ``"prior"`` (registry not available).
        verified_at: time of the last verification of the metadata.
        reasons: why it is not the newest version; empty if it is.
    """

    state: State
    description: Description | None
    source: Literal["registry", "cache", "warm_start", "prior"]
    verified_at: datetime | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Anchor:
    """Signed head of the audit log.

    Attributes:
        seq: sequence number of the entry.
        digest: its hash, 32 bytes.
        signed_at: signing time of the registry; None: signed by an earlier release.
    """

    seq: int
    digest: bytes = field(repr=False)
    signed_at: datetime | None = None

    @classmethod
    def of(cls, chain: Chain) -> Self | None:
        """Return the head in verified metadata; None if there is none.

        Raises:
            VerificationError: the signed value is not a valid head.
        """
        head = signed_head(chain.targets)
        if head is None:
            return None
        text = chain.timestamp.unrecognized_fields.get("signed_at")
        try:
            return cls(*head, None if text is None else datetime.fromisoformat(text))
        except (TypeError, ValueError) as error:
            message = f"invalid signing time {text!r:.80} in the registry; refresh it"
            raise VerificationError(message) from error
