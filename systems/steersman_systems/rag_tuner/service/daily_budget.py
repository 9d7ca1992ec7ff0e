"""Daily spending limits of tenants for model calls."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from steersman.db.spending_file import spending
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from steersman.db.spending_file import Spending

_log = logging.getLogger(__name__)
_DAY_S = 86_400.0
_LEAST_USD = 1e-9  # rounding error


@dataclass
class Purse:
    """Spending limit and spending of one request.

    Attributes:
        number: id of the hold.
        tenant: tenant id.
        usd: spending limit in US dollars; None without prices.
        calls: limit of model calls.
        less: whether the day leaves less than requested, for dollars and for calls.
        refusal: returns the refusal message for given spending.
        spent_usd: spending in US dollars, set by the spender.
        spent_calls: number of calls, set by the spender.
        saved: part of the spending that is recorded.
    """

    number: int
    tenant: UUID
    usd: float | None
    calls: int
    less: tuple[bool, bool]
    refusal: Callable[[float, int], Refused]
    spent_usd: float = 0.0
    spent_calls: int = 0
    saved: tuple[float, int] = (0.0, 0)

    @property
    def ended(self) -> Refused | None:
        """Refusal if the daily limit ended the spending; None: the request's own limit did."""
        usd, calls = self.less
        by_calls = self.spent_calls >= self.calls
        if not (calls if by_calls else usd):
            return None
        return self.refusal(self.spent_usd, self.spent_calls)


class Daily:
    """Daily spending limits, reset at midnight UTC, for all processes with the same folder.

    A request holds its limit before it starts and releases the unspent rest at its end, so parallel
    requests cannot exceed the limit together. After a killed process the hold expires after
    `lease_s`; saved spending stays. Spending counts for the day in which it is recorded.

    Args:
        file: SQLite file; created when needed.
        usd: daily limit of a tenant in US dollars.
        calls: daily limit of a tenant in model calls.
        lease_s: lifetime of a hold in seconds; it is renewed every quarter of it.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        file: Path,
        *,
        usd: float,
        calls: int,
        lease_s: float = 180.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file, self._usd, self._calls = file, usd, calls
        self._lease_s, self._clock = lease_s, clock
        self._unwritten: dict[UUID, tuple[float, int]] = {}  # by requests that have ended
        self._lock = threading.Lock()

    @contextmanager
    def purse(self, tenant: UUID, usd: float | None, calls: int) -> Iterator[Purse]:
        """Hold the limit of a request within the context, and release the unspent rest.

        Args:
            usd: requested limit in US dollars; None without prices.

        Raises:
            Refused: the spending record cannot be written.
        """
        purse, ended = self._taken(tenant, usd, calls), threading.Event()
        keeper = threading.Thread(
            target=self._keep, args=(purse, ended), name="steersman-purse", daemon=True
        )
        try:
            keeper.start()
            yield purse
        finally:
            ended.set()
            if keeper.ident is not None:
                keeper.join()  # or it might hold again what is freed here
            self._write(purse, ended=True)

    def save(self, purse: Purse) -> None:
        """Record the spending so far and renew the hold.

        Raises:
            Refused: the spending record cannot be written.
        """
        self._write(purse)

    def _write(self, purse: Purse, *, ended: bool = False) -> None:
        spent = purse.spent_usd, purse.spent_calls
        more = spent[0] - purse.saved[0], spent[1] - purse.saved[1]
        now = self._clock()
        try:
            with self._recording() as record:
                record.spend(str(purse.tenant), _day(now), *more)
                if ended:
                    record.release(purse.number)
                else:
                    self._hold(record, purse, spent, now)
        except Refused:
            message = "spending of $%.6f and %d calls by tenant %s is not recorded"
            _log.error(message, *more, purse.tenant)
            if ended:
                self._keep_in_mind(purse.tenant, more)
            raise
        purse.saved = spent  # only after the commit: uncommitted spending is written the next time

    def _keep_in_mind(self, tenant: UUID, spent: tuple[float, int]) -> None:
        """Add spending that the tenant's next request will record."""
        with self._lock:
            usd, calls = self._unwritten.get(tenant, (0.0, 0))
            self._unwritten[tenant] = usd + spent[0], calls + spent[1]

    def _keep(self, purse: Purse, ended: threading.Event) -> None:
        """Renew the hold of a request until it has ended."""
        while not ended.wait(self._lease_s / 4):
            # The log says why it failed; the next time is soon enough.
            with suppress(Refused), self._recording() as record:
                self._hold(record, purse, purse.saved, self._clock())

    def _hold(self, record: Spending, purse: Purse, spent: tuple[float, int], now: float) -> None:
        # Insert again if it expired while this process was stopped: its budget can still be spent.
        left = max(0.0, (purse.usd or 0.0) - spent[0]), max(0, purse.calls - spent[1])
        until = now + self._lease_s
        record.hold(purse.number, str(purse.tenant), *left, until)

    def _taken(self, tenant: UUID, usd: float | None, calls: int) -> Purse:
        with self._lock:
            unwritten = self._unwritten.pop(tenant, (0.0, 0))
        try:
            return self._held(tenant, usd, calls, unwritten)
        except BaseException:
            self._keep_in_mind(tenant, unwritten)
            raise

    def _held(
        self, tenant: UUID, usd: float | None, calls: int, unwritten: tuple[float, int]
    ) -> Purse:
        now = self._clock()
        day = _day(now)
        with self._recording() as record:
            if any(unwritten):
                record.spend(str(tenant), day, *unwritten)
            record.expire(day, now)
            spent = record.total(str(tenant), day)
            left_usd, left_calls = self._usd - spent[0], max(0, self._calls - spent[1])
            left_usd = left_usd if left_usd > _LEAST_USD else 0.0
            may = None if usd is None else min(usd, left_usd)
            less = usd is not None and left_usd < usd, left_calls < calls
            may_call = min(calls, left_calls)
            # Random, so never reused: an expired request releases only its own hold.
            number, refusal = secrets.randbits(62), partial(self._refused, spent, now)
            purse = Purse(number, tenant, may, may_call, less, refusal)
            self._hold(record, purse, purse.saved, now)
        return purse

    def _refused(self, before: tuple[float, int], now: float, usd: float, calls: int) -> Refused:
        detail = (
            f"daily limit of model calls reached: ${before[0] + usd:.2f} and "
            f"{before[1] + calls:,} calls are spent or in progress today, of ${self._usd:.2f} and "
            f"{self._calls:,} allowed per tenant; try again after midnight UTC"
        )
        return Refused.of("too_many_requests", detail, retry_after_s=_DAY_S - now % _DAY_S)

    @contextmanager
    def _recording(self) -> Iterator[Spending]:
        try:
            with spending(self._file) as record:
                yield record
        except (OSError, sqlite3.Error) as error:
            _log.error("%s: %s", self._file, error)
            detail = "the spending record cannot be written; see the server log"
            raise Refused.of("unavailable", detail) from None


def _day(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).date().isoformat()
