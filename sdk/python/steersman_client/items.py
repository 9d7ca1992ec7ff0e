"""Items of the queue, their settlement, and the counts of the queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["record", "event"]
Drop = Literal["never", "oldest"]


@dataclass(frozen=True, slots=True)
class Item:
    """Item to deliver.

    Attributes:
        kind: record (decision to store later) or event.
        id: decision id or event id.
        body: JSON body.
    """

    kind: Kind
    id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Row:
    """Item in the queue, with its row number."""

    seq: int
    item: Item


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """Item that the service refused permanently, kept for inspection.

    Attributes:
        kind: ``record`` or ``event``.
        id: decision id or event id.
        body: JSON that was sent.
        problem: JSON that the service answered.
        at: time in seconds since 1970.
    """

    kind: Kind
    id: str
    body: bytes
    problem: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Settlement:
    """Results of the rows of a batch; other rows stay in place.

    Attributes:
        done: delivered rows to remove.
        refused: rows to set aside, with their problems.
        later: rows to move to the end, so that they do not block others.
    """

    done: tuple[Row, ...] = ()
    refused: tuple[tuple[Row, bytes], ...] = ()
    later: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    """Counts of the queue, for all processes that share it.

    Attributes:
        records: number of decisions to store later.
        events: number of undelivered events.
        bytes: size on disk in bytes.
        refused: number of refused items; at most the last 1,000 are kept.
        dropped: number of items dropped from a full queue with ``drop="oldest"``.
    """

    records: int
    events: int
    bytes: int
    refused: int
    dropped: int
