"""Delivery of a batch of the queue, and the result for each of its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from steersman_client.exchange import Answer, Request
from steersman_client.items import Settlement
from steersman_client.messages import EventResult, write
from steersman_client.responses import Again, Done, judge, read_problem
from steersman_client.retry import RETRIED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman_client.exchange import Heard
    from steersman_client.items import Row

MOST_ROWS = 500
FEW_ROWS = 64
"""Rows of the first batch after a failure; a loaded service refuses batches of more than 100."""
MOST_BYTES = 768 << 10
"""Maximum size of a batch; the service accepts 1 MiB with the envelope."""
_AT_FAULT = frozenset({400, 413, 422})
"""Statuses of a whole batch that one of its rows may have caused permanently."""


class _Results(msgspec.Struct):
    results: list[EventResult]


_results = msgspec.json.Decoder(_Results).decode


@dataclass(frozen=True, slots=True)
class Outcome:
    """Next step after a batch was sent.

    Attributes:
        settlement: results of its rows.
        rows_next: maximum number of rows of the next batch: few after a failure, doubled after each
            success, halved until a row that spoils its batch is alone.
        failed: whether to pause, longer after each failure in a row.
        retry_after_s: minimum pause in seconds.
        reason: reason of the failure.
    """

    settlement: Settlement
    rows_next: int
    failed: bool = False
    retry_after_s: float = 0.0
    reason: str = ""


def batch_request(rows: Sequence[Row]) -> Request:
    """Return the request that delivers rows, records before events."""
    bodies: dict[str, list[bytes]] = {"record": [], "event": []}
    for row in rows:
        bodies[row.item.kind].append(row.item.body)
    events, records = b",".join(bodies["event"]), b",".join(bodies["record"])
    return Request("POST", "/v1/events", b'{"records":[%b],"events":[%b]}' % (records, events))


def settle(rows: Sequence[Row], heard: Heard, now: float) -> Outcome:
    """Return the results of the rows that were sent.

    Rows that the service stored or replayed are done. Rows that it refused permanently are set
    aside. All others are sent again, which is harmless because of their ids.

    Args:
        rows: rows of `batch_request`.
        heard: answer or failure.
        now: seconds since 1970, for a Retry-After date.
    """

    def parse(body: bytes) -> list[EventResult]:
        return _matched(rows, _results(body).results)

    verdict = judge(heard, parse, now)
    if isinstance(verdict, Done):
        return _settle_each(rows, verdict.value)
    if isinstance(heard, Answer) and heard.status in _AT_FAULT:
        return _isolate(rows, heard)
    if isinstance(verdict, Again):
        outcome = Outcome(
            Settlement(),
            FEW_ROWS,
            failed=True,
            retry_after_s=verdict.retry_after_s,
            reason=verdict.reason,
        )
        # A row may crash its handler: alone it goes to the end, so that others get past it.
        if isinstance(heard, Answer) and heard.status == 500:
            aside = Settlement(later=tuple(rows)) if len(rows) == 1 else Settlement()
            return replace(outcome, settlement=aside, rows_next=max(1, len(rows) // 2))
        return outcome
    return Outcome(Settlement(), MOST_ROWS, failed=True, reason=str(verdict.error))


def _matched(rows: Sequence[Row], results: list[EventResult]) -> list[EventResult]:
    if len(results) != len(rows):
        raise ValueError(f"{len(results)} results for {len(rows)} items")
    for row, result in zip(rows, results, strict=True):
        if result.status != "refused" and result.id != row.item.id:
            raise ValueError("the results are not in the order of the items")
    return results


def _settle_each(rows: Sequence[Row], results: list[EventResult]) -> Outcome:
    done: list[Row] = []
    refused: list[tuple[Row, bytes]] = []
    later: list[Row] = []
    record_missing = False
    for row, result in zip(rows, results, strict=True):
        status = _status(result)
        if result.status != "refused":
            done.append(row)
        elif status in RETRIED or (status == 404 and record_missing and row.item.kind == "event"):
            # An event whose record is not stored yet is unknown only for the moment.
            later.append(row)
            record_missing |= row.item.kind == "record"
        else:
            refused.append((row, write(result.problem)))
    return Outcome(
        Settlement(tuple(done), tuple(refused), tuple(later)),
        min(MOST_ROWS, max(FEW_ROWS, 2 * len(rows))),
        failed=bool(later),
        reason=f"{len(later)} of {len(rows)} items could not be stored now" if later else "",
    )


def _status(result: EventResult) -> int:
    status = (result.problem or {}).get("status")
    return status if isinstance(status, int) else 0


def _isolate(rows: Sequence[Row], answer: Answer) -> Outcome:
    if len(rows) > 1:
        return Outcome(Settlement(), len(rows) // 2)
    problem = read_problem(answer)
    if problem is None:
        # Not a Steersman service: its answer must not settle rows.
        return Outcome(
            Settlement(),
            MOST_ROWS,
            failed=True,
            reason=f"status {answer.status} without a problem document; check base_url and proxies",
        )
    return Outcome(Settlement(refused=((rows[0], write(problem)),)), MOST_ROWS)
