"""Bounded store of recent texts, with exact lookup and nearest neighbour by cosine."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["RecentTexts"]


class RecentTexts:
    """Recent texts with values and unit vectors; the text written longest ago is evicted.

    A read changes nothing; expired texts are only hidden. Each read of the nearest text scans
    ``capacity`` vectors.

    Args:
        capacity: maximum number of texts, 1 to 1,000,000.
        ttl_s: seconds after which a text expires, > 0.
        sizes: name and length of each vector space, lengths 1 to 65,536.

    Raises:
        InputError: a number outside its range.

    >>> store = RecentTexts(capacity=2, ttl_s=60.0, sizes={"words": 2})
    >>> store.write("a", "first", {"words": np.array([1.0, 0.0])}, now_s=0.0)
    >>> store.find("a", now_s=30.0), store.find("a", now_s=90.0)
    (0, None)
    >>> store.nearest("words", np.array([0.6, 0.8]), now_s=30.0)
    (0.6, 0)
    """

    def __init__(self, *, capacity: int, ttl_s: float, sizes: Mapping[str, int]) -> None:
        fits = all(1 <= size <= 65_536 for size in sizes.values())
        if not (1 <= capacity <= 1_000_000 and ttl_s > 0 and fits):
            message = (
                f"capacity {capacity}, ttl_s {ttl_s}, sizes {dict(sizes)}; allowed: capacity 1 to "
                "1,000,000, ttl_s above 0, sizes 1 to 65,536."
            )
            raise InputError(message)
        self._ttl_s = ttl_s
        self._slots: OrderedDict[str, int] = OrderedDict()
        self._free = list(range(capacity - 1, -1, -1))
        self._vectors = {
            space: np.zeros((capacity, size), dtype=np.float32) for space, size in sizes.items()
        }
        self._written_s = np.full(capacity, -np.inf)
        self._texts: list[str] = [""] * capacity
        self._values: list[str | None] = [None] * capacity

    def __len__(self) -> int:
        return len(self._slots)

    def text(self, slot: int) -> str:
        """Return the text in a slot."""
        return self._texts[slot]

    def value(self, slot: int) -> str | None:
        """Return the value in a slot."""
        return self._values[slot]

    def age_s(self, slot: int, now_s: float) -> float:
        """Return the seconds since a slot was written."""
        return float(now_s - self._written_s[slot])

    def find(self, text: str, now_s: float) -> int | None:
        """Return the slot of exactly this text; None if it is missing or expired."""
        slot = self._slots.get(text)
        return slot if slot is not None and self.age_s(slot, now_s) <= self._ttl_s else None

    def nearest(
        self, space: str, vector: NDArray[np.floating], now_s: float
    ) -> tuple[float, int | None]:
        """Return cosine, clipped to [0, 1], and slot of the nearest live text; else 0 and None."""
        if not self._slots:
            return 0.0, None
        cosines = self._vectors[space] @ np.asarray(vector, dtype=np.float32)
        # Free slots have the time minus infinity, so this masks them too.
        cosines[now_s - self._written_s > self._ttl_s] = -np.inf
        slot = int(np.argmax(cosines))
        if cosines[slot] == -np.inf:
            return 0.0, None
        # float32 sums of unit vectors have about six exact digits.
        return round(float(np.clip(cosines[slot], 0.0, 1.0)), 6), slot

    def write(
        self,
        text: str,
        value: str | None,
        vectors: Mapping[str, NDArray[np.floating]],
        now_s: float,
    ) -> None:
        """Store or renew a text; if the store is full, evict the one written longest ago."""
        slot = self._slots.pop(text, None)
        if slot is None:
            slot = self._free.pop() if self._free else self._slots.popitem(last=False)[1]
        self._slots[text] = slot
        for space, rows in self._vectors.items():
            rows[slot] = vectors[space]
        self._written_s[slot] = now_s
        self._texts[slot] = text
        self._values[slot] = value

    def drop(self, text: str) -> None:
        """Remove a text, if it is stored."""
        slot = self._slots.pop(text, None)
        if slot is not None:
            self._written_s[slot] = -np.inf
            self._texts[slot], self._values[slot] = "", None
            self._free.append(slot)
