"""Error counts per time window, without rereading old rows at every look.

The database counts rows into time buckets. New buckets are counted at every look, older ones less
often, because errors are reported late: the last hour at once, earlier hours in parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, floor, inf
from typing import TYPE_CHECKING, Any

from steersman.db.rollout_decisions import error_buckets
from steersman.rollouts.error_budget import Counts
from steersman.rollouts.plan import RolloutPlan
from steersman.rollouts.unit_outcomes import first_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.db.rollouts import RolloutRow

_PARTS = 10
_AGAIN = 5
"""A tier is recounted after this fraction of its length."""
_TIERS_S = (10.0, 300.0, 3600.0)
_WIDER = 6
"""Ratio of the oldest ages of two consecutive tiers."""
_STEP_S = 600.0
_LONGEST_STEP_S = 86_400.0
_FEW = 10_000
"""Number of decisions below which the next part may be twice as long."""

_Bucket = tuple[int, int]  # errors, decisions


@dataclass(slots=True)
class _RecountTier:
    """Tier of old rows that is recounted in parts, from young to old, in a cycle.

    Attributes:
        near_s: minimum age of its rows in seconds.
        far_s: maximum age of its rows in seconds.
        place: start of the last recounted part, in seconds since 1970.
        at: time of the last recount, in seconds since 1970.
    """

    near_s: float
    far_s: float
    place: float = inf
    at: float = -inf


class Tally:
    """Error counts of one rollout's arms in time buckets.

    A decision of age A is recounted within about A / 2 (later if looks are rare and rows many). So
    outcomes may arrive at any age, and every controller reaches the same counts. A look reads at
    most the last hour, and one part of each tier of older rows.

    Args:
        row: the rollout.
        stretches: lengths of the requested windows in seconds.
    """

    def __init__(self, row: RolloutRow, stretches: Sequence[float]) -> None:
        self._row = row
        self._width_s = min(stretches) / _PARTS
        self._longest_s = max(stretches)
        self._candidate: dict[int, _Bucket] = {}
        self._control: dict[int, _Bucket] = {}
        self._counted = dict.fromkeys(_TIERS_S, -inf)
        self._recount_tiers = _recount_tiers(self._longest_s)
        self._known_from: float | None = None
        self._looked = -inf
        self._before = inf, -inf  # counted interval before a gap: from, to
        self._began = row.started_at.timestamp() - 60.0
        self._step_s = _STEP_S
        holdback = RolloutPlan.from_json(row.plan).holdback
        self._places = _hash_bound(1.0 - holdback), _hash_bound(0.5)

    async def look(self, connection: Any, now: float) -> None:
        """Count new rows, and recount the rows that are due.

        Args:
            now: seconds since 1970.
        """
        due = [span for span in _TIERS_S if not 0 <= now - self._counted[span] < span / _AGAIN]
        known = self._known_from
        if known is None:
            due, begin = list(_TIERS_S), now - min(_STEP_S, self._longest_s)
        else:
            begin = min(now - max([_TIERS_S[0], *due]), self._looked - _TIERS_S[0])
        unseen = known is not None and begin < now - _TIERS_S[-1]
        if unseen:
            begin = now - _TIERS_S[-1]
        elif known is not None:
            begin = max(begin, known)  # _look_back counts older rows in parts
        await self._count(connection, begin, now + 1.0)
        if unseen and known is not None:
            self._before = known, self._looked - _TIERS_S[0]
        if unseen or known is None:
            self._known_from = begin
        self._counted |= dict.fromkeys(due, now)
        self._looked = now
        await self._look_back(connection, now)
        await self._recount(connection, now)
        self._forget(now - self._longest_s)

    def counts(self, length: float, now: float) -> tuple[Counts, Counts] | None:
        """Return errors of candidate and control in a window that ends now.

        Args:
            length: length of the window in seconds.
            now: seconds since 1970.

        Returns:
            The counts; None until the whole window, or the whole rollout, was counted.
        """
        if self._known_from is None or self._known_from > max(now - length, self._began):
            return None
        begin = floor((now - length) / self._width_s)
        return self._sum(self._candidate, begin, length), self._sum(self._control, begin, length)

    async def _look_back(self, connection: Any, now: float) -> None:
        """Count the next part of the rows that were never counted."""
        known, oldest = self._known_from, max(now - self._longest_s, self._began)
        if known is None or known <= oldest:
            return
        earlier = max(oldest, known - self._step_s)
        await self._step(connection, earlier, known)
        begin, end = self._before
        self._known_from = min(earlier, begin) if earlier <= end else earlier

    async def _recount(self, connection: Any, now: float) -> None:
        """Recount the part of each tier that is due."""
        for tier in self._recount_tiers:
            wanted = _AGAIN * abs(now - tier.at)
            if wanted < _STEP_S or self._known_from is None:
                continue
            young, old = now - tier.near_s, max(now - tier.far_s, self._known_from)
            if old < young:
                end = tier.place if old < tier.place < young else young
                begin = max(old, end - min(wanted, self._step_s))
                await self._step(connection, begin, end)
                tier.place = begin
                if begin > old:  # the rest is due at the next look
                    tier.at = max(tier.at, now - (wanted - (end - begin)) / _AGAIN)
                    continue
            tier.at = now

    async def _step(self, connection: Any, begin: float, end: float) -> None:
        """Count a part of the old rows, and adapt the length of the next part to their number."""
        found = await self._count(connection, begin, end)
        if found >= _FEW:
            self._step_s = _STEP_S
        elif end - begin >= self._step_s:
            self._step_s = min(2.0 * self._step_s, _LONGEST_STEP_S)

    def _sum(self, buckets: dict[int, _Bucket], begin: int, length: float) -> Counts:
        found = [bucket for place, bucket in buckets.items() if place >= begin]
        return Counts(length, sum(bad for bad, _ in found), sum(total for _, total in found))

    async def _count(self, connection: Any, begin: float, end: float) -> int:
        """Replace the counts of an interval; return its number of decisions."""
        first, last = floor(begin / self._width_s), ceil(end / self._width_s)
        times = self._time(first), self._time(last)
        found = await error_buckets(
            connection,
            self._row,
            times,
            ids=(first_id(times[0]), first_id(times[1], later=True)),
            below=self._places,
            width_s=self._width_s,
        )
        for buckets in (self._candidate, self._control):
            for place in [place for place in buckets if first <= place < last]:
                del buckets[place]
        for place, candidate, errors, total in found:
            (self._candidate if candidate else self._control)[place] = errors, total
        return sum(one.decisions for one in found)

    def _time(self, place: int) -> datetime:
        return datetime.fromtimestamp(place * self._width_s, UTC)

    def _forget(self, begin: float) -> None:
        first = floor(begin / self._width_s)
        for buckets in (self._candidate, self._control):
            for place in [place for place in buckets if place < first]:
                del buckets[place]


def _recount_tiers(longest_s: float) -> tuple[_RecountTier, ...]:
    """Return the tiers between the last hour and the longest window."""
    ages = [_TIERS_S[-1]]
    while ages[-1] < longest_s:
        ages.append(min(_WIDER * ages[-1], longest_s))
    return tuple(_RecountTier(near, far) for near, far in pairwise(ages))


def _hash_bound(place: float) -> bytes:
    """Return the exclusive upper bound of the unit hashes below a position."""
    end = ceil(place * (1 << 53)) << 11
    return end.to_bytes(8) if end < 1 << 64 else b"\xff" * 9
