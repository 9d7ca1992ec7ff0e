"""Metrics sources that count errors; a failed or stale source leads to hold.

The store is always queried. A Prometheus is optional: it also counts requests whose decision could
not be stored. A source without a valid, current answer is reported with a reason, never read as "no
errors".
"""

from __future__ import annotations

import asyncio
import json
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

import urllib3

from steersman.errors import InputError, StoreError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.error_budget import Counts
from steersman.rollouts.error_counts import Tally
from steersman.rollouts.evidence import SourceEvidence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow

METRIC = "steersman_arm_decisions_total"
_MOST_BYTES = 1 << 20
_MOST_KNOWN = 10_000
_MOST_TALLIES = 1_000
_FRESH = 60
"""Fraction of a window after which it is counted again."""
_ARMS = ("candidate", "control")
_COUNTING = "errors of earlier hours or days are still being counted"


class Source(Protocol):
    """Source of error counts."""

    name: str
    tells_tenants_apart: bool
    """Whether its counts are per tenant; if not, it is queried only in a store with one tenant."""

    async def read(
        self, connection: Any, row: RolloutRow, stretches: Sequence[float], now: datetime
    ) -> SourceEvidence:
        """Return the error counts of windows that end now; errors are reported in the result.

        Args:
            stretches: lengths of the windows in seconds, above 0.
        """


class _CountCache:
    """Cache of counts by window; long windows are counted less often than short ones."""

    def __init__(self) -> None:
        self._found: dict[tuple[UUID, float], tuple[datetime, tuple[Counts, Counts]]] = {}

    def due(self, row: RolloutRow, stretches: Sequence[float], now: datetime) -> list[float]:
        return [length for length in stretches if not self._is_fresh(row, length, now)]

    def keep(
        self, row: RolloutRow, found: Mapping[float, tuple[Counts, Counts]], now: datetime
    ) -> None:
        self._found |= {(row.id, length): (now, counts) for length, counts in found.items()}
        while len(self._found) > _MOST_KNOWN:
            self._found.pop(next(iter(self._found)))

    def evidence(self, name: str, row: RolloutRow, stretches: Sequence[float]) -> SourceEvidence:
        counts = [self._found[row.id, length][1] for length in stretches]
        return SourceEvidence(
            name,
            candidate=tuple(candidate for candidate, _ in counts),
            control=tuple(control for _, control in counts),
        )

    def _is_fresh(self, row: RolloutRow, length: float, now: datetime) -> bool:
        found = self._found.get((row.id, length))
        # The counts of a young rollout change as quickly as those of a short window.
        covered_s = min(length, _lasted_s(row, now))
        return found is not None and 0.0 <= (now - found[0]).total_seconds() < covered_s / _FRESH


class StoreSource:
    """Counts from the rows of decisions and events.

    An error is a decision that the unit's arm could not answer, or whose outcome ``error`` is above
    0. The source is always alive, because a verdict needs the store anyway.
    """

    name = "store"
    tells_tenants_apart = True

    def __init__(self) -> None:
        self._tallies: dict[UUID, Tally] = {}

    async def read(
        self, connection: Any, row: RolloutRow, stretches: Sequence[float], now: datetime
    ) -> SourceEvidence:
        """Return the counts of one rollout's arms.

        Args:
            stretches: lengths in seconds, above 0; the same at every call.
        """
        tally = self._tallies.pop(row.id, None) or Tally(row, stretches)
        moment = now.timestamp()
        async with as_tenant(connection, row.tenant):
            await tally.look(connection, moment)
        self._tallies[row.id] = tally  # last, so that tallies of ended rollouts are evicted first
        while len(self._tallies) > _MOST_TALLIES:
            self._tallies.pop(next(iter(self._tallies)))
        found = [tally.counts(length, moment) for length in stretches]
        counts = [pair for pair in found if pair is not None]
        return SourceEvidence(
            self.name,
            candidate=tuple(candidate for candidate, _ in counts),
            control=tuple(control for _, control in counts),
            behind="" if len(counts) == len(found) else _COUNTING,
        )


class PrometheusSource:
    """Error counts from a Prometheus that scrapes the service processes, over its HTTP API.

    Metric labels contain no tenant, so it is queried only in a store with one tenant; otherwise a
    verdict could follow from another tenant's candidate and disclose it.

    Args:
        url: URL of Prometheus, for example ``http://127.0.0.1:9090``.
        timeout_s: timeout in seconds for all queries of one look, above 0.
        stale_s: maximum age of the newest sample in seconds.
        headers: headers of every query, for example an authorization.

    Raises:
        InputError: invalid URL or time.

    >>> PrometheusSource("ftp://metrics")
    Traceback (most recent call last):
    steersman.errors.InputError: invalid Prometheus URL 'ftp://metrics': expected ...
    """

    name = "prometheus"
    tells_tenants_apart = False

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 3.0,
        stale_s: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            message = f"invalid Prometheus URL {url!r}: expected http://… or https://…"
            raise InputError(message + ", for example http://127.0.0.1:9090")
        for name, value in (("timeout_s", timeout_s), ("stale_s", stale_s)):
            if not (isfinite(value) and value > 0):
                raise InputError(f"invalid {name} {value!r}: expected seconds above 0")
        self._query_url = url.rstrip("/") + "/api/v1/query"
        self._timeout_s = timeout_s
        self._stale_s = stale_s
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout_s, headers=headers)
        self._known = _CountCache()

    async def read(
        self, connection: Any, row: RolloutRow, stretches: Sequence[float], now: datetime
    ) -> SourceEvidence:
        """Return the counts of one rollout's arms.

        Args:
            stretches: lengths in seconds, above 0.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                reason = await self._doubt(row)
                if not reason:
                    due = self._known.due(row, stretches, now)
                    found = {length: await self._count(row, length, now) for length in due}
                    self._known.keep(row, found, now)
        except TimeoutError:
            reason = f"no answer within {self._timeout_s:g} s"
        except StoreError as error:
            reason = str(error)
        if reason:
            return SourceEvidence(self.name, alive=False, reason=reason)
        return self._known.evidence(self.name, row, stretches)

    async def _doubt(self, row: RolloutRow) -> str:
        """Return why its samples are not valid; empty if they are."""
        newest = await self._ask(f"time() - max(timestamp({_series(row)}))")
        if not newest:
            return f"no samples of {METRIC} for {row.skill}/{row.point}"
        age_s = newest[""]
        if age_s > self._stale_s:
            return f"its newest sample is {age_s:.0f} s old; limit {self._stale_s:g} s"
        return ""

    async def _count(self, row: RolloutRow, length: float, now: datetime) -> tuple[Counts, Counts]:
        # No label names the rollout: earlier samples belong to another candidate.
        over = f"[{max(1, round(min(length, _lasted_s(row, now)) * 1000))}ms]"
        total = await self._ask(f"sum by (arm) (increase({_series(row)}{over}))")
        bad = await self._ask(f"sum by (arm) (increase({_series(row, bad=True)}{over}))")
        # Prometheus extrapolates both separately, so errors could exceed decisions.
        candidate, control = (
            Counts(length, min(bad.get(arm, 0.0), total.get(arm, 0.0)), total.get(arm, 0.0))
            for arm in _ARMS
        )
        return candidate, control

    async def _ask(self, query: str) -> dict[str, float]:
        """Return the result of an instant query, by arm."""
        return _values(await asyncio.to_thread(self._request, query))

    def _request(self, query: str) -> bytes:
        try:
            answer = self._pool.request(
                "GET",
                self._query_url,
                fields={"query": query},
                redirect=False,
                preload_content=False,
            )
            try:
                body = answer.read(_MOST_BYTES + 1)
            finally:
                answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise StoreError(f"no response: {error!r:.200}") from error
        if answer.status != 200 or len(body) > _MOST_BYTES:
            message = f"it answered status {answer.status} with {len(body)} bytes; expected 200"
            raise StoreError(message + "; check its address and its log")
        return body


def _lasted_s(row: RolloutRow, now: datetime) -> float:
    return max(0.0, (now - row.started_at).total_seconds())


def _series(row: RolloutRow, *, bad: bool = False) -> str:
    # A decision that could not be stored is counted twice: by its draw and as "unstored".
    more = 'result!="ok"' if bad else 'result!="unstored"'
    return f'{METRIC}{{skill="{row.skill}",point="{row.point}",{more}}}'


def _values(body: bytes) -> dict[str, float]:
    try:
        answer = json.loads(body)
        if answer["status"] != "success":
            raise StoreError(f"it refused a query: {answer.get('error', '')!s:.200}")
        found = {
            str(one["metric"].get("arm", "")): float(one["value"][1])
            for one in answer["data"]["result"]
        }
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise StoreError(f"the answer is not a query result: {body[:100]!r}") from error
    wrong = next((value for value in found.values() if not (isfinite(value) and value >= 0)), None)
    if wrong is not None:  # without it the arm would seem to have no errors
        raise StoreError(f"the answer has the value {wrong!r}, which is not a count")
    return found
