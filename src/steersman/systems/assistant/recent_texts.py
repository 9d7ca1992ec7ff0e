"""A bounded store of recent texts that finds the same one, or the nearest by a cosine."""

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
    """Texts, each with a value and unit vectors; the one written longest ago goes first.

    Reading changes nothing: neither the order of eviction nor what has expired, which is only
    hidden. Every read costs a pass over ``capacity`` times the length of the vector.

    Args:
        capacity: number of texts at most, 1 to 1,000,000.
        ttl_s: seconds after which a text counts as gone, > 0.
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
        """Return how long ago a slot was written, seconds."""
        return float(now_s - self._written_s[slot])

    def find(self, text: str, now_s: float) -> int | None:
        """Return the slot of this very text, None if it is not there or has expired."""
        slot = self._slots.get(text)
        return slot if slot is not None and self.age_s(slot, now_s) <= self._ttl_s else None

    def nearest(
        self, space: str, vector: NDArray[np.floating], now_s: float
    ) -> tuple[float, int | None]:
        """Return cosine and slot of the nearest text that has not expired.

        Args:
            space: name of the vector space.
            vector: a unit vector of that space.
            now_s: the time, seconds.

        Returns:
            A cosine clipped to [0, 1] and its slot; 0 and None when the store is empty.
        """
        if not self._slots:
            return 0.0, None
        cosines = self._vectors[space] @ np.asarray(vector, dtype=np.float32)
        # Free slots were written at minus infinity, so they are masked with the expired ones.
        cosines[now_s - self._written_s > self._ttl_s] = -np.inf
        slot = int(np.argmax(cosines))
        if cosines[slot] == -np.inf:
            return 0.0, None
        # Six digits are what float32 sums of unit vectors are good for.
        return round(float(np.clip(cosines[slot], 0.0, 1.0)), 6), slot

    def write(
        self,
        text: str,
        value: str | None,
        vectors: Mapping[str, NDArray[np.floating]],
        now_s: float,
    ) -> None:
        """Store or renew a text; when all slots are taken, the one written longest ago goes."""
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
        """Forget a text, if it is there."""
        slot = self._slots.pop(text, None)
        if slot is not None:
            self._written_s[slot] = -np.inf
            self._texts[slot], self._values[slot] = "", None
            self._free.append(slot)
