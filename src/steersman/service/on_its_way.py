"""A decision that was drawn and is being stored: what to answer, on what it waits, for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from steersman.wire import Decision, Refused

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable

    from steersman.service.rows import Wanted
    from steersman.spec import DecisionPoint
    from steersman.store import DecisionRow, Expired, Taken

    Waiting: TypeAlias = asyncio.Future[dict[Hashable, Taken | Exception] | Expired]


class OnItsWay:
    """A decision on its way to the store.

    Args:
        row: what was drawn.
        spec: the declaration that it was made under.
        within_s: how long to wait.
        read_at: from then on it waits, on the clock that deadlines are kept by.
        arm: whose turn it was, while a rollout is under way.
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
"""What became of a request: on its way, answered, or refused."""


def waiting_of(begun: Begun) -> Waiting | None:
    """Return what a request waits on; None: it is answered.

    Args:
        begun: what became of it.

    >>> waiting_of(ValueError("refused"))
    """
    return begun.waiting if isinstance(begun, OnItsWay) else None


def same_request(asked: OnItsWay, wanted: Wanted) -> OnItsWay | Refused:
    """Return the request on its way that has the same key, if it is the same request.

    Args:
        asked: on its way.
        wanted: has its key.
    """
    if asked.row.body_hash == wanted.body_hash:
        return asked
    return key_conflict(asked.row.idempotency_key)


def key_conflict(key: str | None) -> Refused:
    """Return that a key was used with another body.

    Args:
        key: of both.

    >>> key_conflict("k").problem.status
    409
    """
    detail = f"idempotency key {key!r} was used with another body; use a new key for a new request"
    return Refused.of("idempotency_conflict", detail, field="idempotency_key")
