"""What waits to be delivered, what becomes of it, and how much there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["record", "event"]
Drop = Literal["never", "oldest"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to deliver.

    Attributes:
        kind: a record (a decision to be stored late) or an event.
        id: of the decision or event.
        body: JSON, as it will be sent.
    """

    kind: Kind
    id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Row:
    """An item in the queue, with its number there."""

    seq: int
    item: Item


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item that the service refused for good; it is kept so that somebody can look at it.

    Attributes:
        kind: ``record`` or ``event``.
        id: of the decision or event.
        body: the JSON that was sent.
        problem: the JSON that the service answered.
        at: when, in seconds since 1970.
    """

    kind: Kind
    id: str
    body: bytes
    problem: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is done with the rows of a batch; those not named stay where they are.

    Attributes:
        done: delivered, to be removed.
        refused: to be set aside, each with the problem.
        later: to be put at the end, so that they hold up nothing.
    """

    done: tuple[Row, ...] = ()
    refused: tuple[tuple[Row, bytes], ...] = ()
    later: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is in the queue, of all processes that share it.

    Attributes:
        records: decisions to be stored late.
        events: events not yet delivered.
        bytes: used on disk.
        refused: items the service refused so far; the last 1,000 can be looked at, fewer where
            their room was needed.
        dropped: items given up because the queue was full, with ``drop="oldest"``.
    """

    records: int
    events: int
    bytes: int
    refused: int
    dropped: int
