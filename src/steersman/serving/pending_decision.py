"""Decision that is drawn and being stored: its answer, what it waits for, and its deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from steersman.wire import Decision, Refused

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable

    from steersman.db.decisions import DecisionRow, Taken
    from steersman.db.write_batches import Expired
    from steersman.serving.decision_rows import Wanted
    from steersman.spec.point import DecisionPoint

    Waiting: TypeAlias = asyncio.Future[dict[Hashable, Taken | Exception] | Expired]


class OnItsWay:
    """Decision being stored.

    Args:
        row: drawn row.
        spec: declaration of the decision point.
        within_s: maximum wait in seconds.
        read_at: start of the wait, on the deadline clock.
        arm: assigned arm during a rollout.
    """

    __slots__ = ("arm", "read_at", "row", "spec", "waiting", "within_s")

    def __init__(
        self,
        row: DecisionRow,
        spec: DecisionPoint,
        within_s: float,
        read_at: float,
        arm: str = "",
    ) -> None:
        self.row = row
        self.arm = arm
        self.spec = spec
        self.within_s = within_s
        self.read_at = read_at
        self.waiting: Waiting | None = None


Begun: TypeAlias = OnItsWay | Decision | Exception
"""State of a request: being stored, answered, or refused."""


def waiting_of(begun: Begun) -> Waiting | None:
    """Return what a request waits for; None: it is answered.

    >>> waiting_of(ValueError("refused"))
    """
    return begun.waiting if isinstance(begun, OnItsWay) else None


def same_request(asked: OnItsWay, wanted: Wanted) -> OnItsWay | Refused:
    """Return the request in progress with the same key, or a refusal if its body differs."""
    if asked.row.body_hash == wanted.body_hash:
        return asked
    return key_conflict(asked.row.idempotency_key)


def key_conflict(key: str | None) -> Refused:
    """Return the refusal of a key that was used with another body.

    >>> key_conflict("k").problem.status
    409
    """
    detail = f"idempotency key {key!r} was used with another body; use a new key for a new request"
    return Refused.of("idempotency_conflict", detail, field="idempotency_key")
