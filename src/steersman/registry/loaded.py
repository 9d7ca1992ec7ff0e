"""Results of a consumer: a loaded state, and the signed head of the audit log."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from steersman.errors import VerificationError
from steersman.registry.audit_head import signed_head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.registry.chain import Chain
    from steersman.registry.description import Description

    State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Loaded:
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
