"""Signed feature hashing into a fixed number of slots.

A token goes to slot h mod size with sign ±1, both from one 64-bit hash. So collisions cancel in
expectation and inner products stay unbiased. The hash is BLAKE2b with the seed as salt: it is equal
on every machine, and no cheap way to construct collisions is known.

Source: Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009, eq. 1; the
sign is taken from the same hash as the slot, of which it uses another bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from math import fsum, sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


Placed = tuple["NDArray[np.intp]", "NDArray[np.float64]"]


@dataclass(frozen=True, slots=True)
class SignedHash:
    """Places tokens in the slots 0 to ``size - 1``.

    Attributes:
        seed: 0 to 2³² - 1; another seed gives other collisions.
        size: number of slots, at least 1.
    """

    seed: int
    size: int

    def place(self, namespace: str, tokens: Iterable[str]) -> Placed:
        """Return the slots, shape (n,), and the signs (±1.0), shape (n,), of n tokens.

        Args:
            namespace: keeps equal tokens of different fields apart.
            tokens: any text, unpaired surrogates included.

        >>> slots, signs = SignedHash(seed=0, size=50).place("intent", ["weather", "music"])
        >>> slots.tolist(), signs.tolist()
        ([11, 37], [1.0, -1.0])
        """
        salt = self.seed.to_bytes(8, "little")
        primed = blake2b(f"{namespace}\x1f".encode(), digest_size=8, salt=salt)
        digests = []
        for token in tokens:
            hashed = primed.copy()
            hashed.update(token.encode("utf-8", "surrogatepass"))
            digests.append(hashed.digest())
        codes = np.frombuffer(b"".join(digests), dtype="<u8")
        slots = ((codes >> np.uint64(1)) % np.uint64(self.size)).astype(np.intp)
        return slots, np.where(codes & np.uint64(1), 1.0, -1.0)


def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``vector`` scaled to Euclidean norm 1; a zero vector stays unchanged.

    Correctly rounded sums make the result bit-identical on every machine.
    """
    largest = float(np.max(np.abs(vector), initial=0.0))
    if largest == 0.0:
        return vector
    scaled = vector / largest
    return scaled / sqrt(fsum((scaled * scaled).tolist()))
