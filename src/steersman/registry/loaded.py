"""What a consumer returns: a state that may be served, and the head of the audit, as signed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from steersman.errors import VerificationError
from steersman.registry.heads import signed_head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.registry.chain import Chain
    from steersman.registry.description import Description

    State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Loaded:
    """A state that may be served.

    Attributes:
        state: arrays by name, checked.
        description: as it was signed; None for a warm start and a prior.
        source: ``"registry"`` if the registry verified just now, ``"cache"`` if it did before,
            ``"warm_start"`` or ``"prior"`` if nothing of it could be had.
        verified_at: when the registry's metadata verified last.
        reasons: why it is not the newest version of the registry; empty if it is.
    """

    state: State
    description: Description | None
    source: Literal["registry", "cache", "warm_start", "prior"]
    verified_at: datetime | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Anchor:
    """The head of the audit log as it was signed.

    Attributes:
        seq: number of the entry.
        digest: its hash, 32 bytes.
        signed_at: when the registry was signed that says so; None: an earlier release signed it.
    """

    seq: int
    digest: bytes = field(repr=False)
    signed_at: datetime | None = None

    @classmethod
    def of(cls, chain: Chain) -> Self | None:
        """Return the head that verified metadata holds; None if it holds none.

        Args:
            chain: verified.

        Raises:
            VerificationError: what was signed is no head.
        """
        head = signed_head(chain.targets)
        if head is None:
            return None
        text = chain.timestamp.unrecognized_fields.get("signed_at")
        try:
            return cls(*head, None if text is None else datetime.fromisoformat(text))
        except (TypeError, ValueError) as error:
            message = f"the registry was signed at {text!r:.80}, which is no time; refresh it"
            raise VerificationError(message) from error
