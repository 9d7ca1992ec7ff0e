"""Targets of investigations: unit vectors, identified by their texts if known."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from steersman.errors import InputError
from steersman.features import fold_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

WARM_SHARE = 0.6
"""Share of bfcl's texts for the warm start."""
Part = Literal["warm", "ab"]

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Embedding to investigate.

    Args:
        vector: (size,) float64 unit vector.
        name: Name in reports.
        text: Embedded text; ``None`` if unknown.
        row: Row in its source.
    """

    vector: NDArray[np.float64]
    name: str = ""
    text: str | None = None
    row: int = 0

    @classmethod
    def of_vector(
        cls, vector: Any, *, name: str = "", text: str | None = None, row: int = 0
    ) -> Self:
        """Return the target of a vector; only its direction matters.

        Raises:
            InputError: Another shape, NaN or infinite numbers, or the zero vector.

        >>> Target.of_vector([3.0, 4.0]).vector.tolist()
        [0.6, 0.8]
        """
        return cls(unit_vector(vector), name, text, row)


def unit_vector(vector: Any) -> NDArray[np.float64]:
    """Return a vector scaled to length one.

    Returns:
        (size,) float64.

    Raises:
        InputError: another shape, NaN or infinite numbers, or the zero vector.

    >>> unit_vector([0, 2]).tolist()
    [0.0, 1.0]
    """
    try:
        given = np.asarray(vector)
        if np.iscomplexobj(given):
            message = (
                f"the target has type {given.dtype}; expected real numbers; pass its real part"
            )
            raise InputError(f"{message}, if that is what was embedded")
        wide = np.array(given, np.float64)
    except (TypeError, ValueError) as wrong:
        message = f"the target is not a vector ({wrong}); expected finite numbers; pass a flat list"
        raise InputError(message) from None
    if wide.ndim != 1 or wide.size == 0:
        message = f"the target has shape {wide.shape}; expected one row of numbers"
        raise InputError(f"{message}; investigate one embedding at a time")
    bad = np.flatnonzero(~np.isfinite(wide))
    if len(bad):
        message = (
            f"the target holds {wide[bad[0]]} at place {bad[0]} ({len(bad)} such in all); allowed "
            "are finite numbers; embed the text again, or leave this target out"
        )
        raise InputError(message)
    # Scaled first, as squares of very small or large numbers leave the range of float64.
    largest = float(np.abs(wide).max())
    if largest == 0.0:
        message = (
            "the target is the zero vector, which has no direction; embed a "
            "text that is not empty, or leave this target out"
        )
        raise InputError(message)
    scaled = wide / largest
    direction: NDArray[np.float64] = scaled / np.sqrt((scaled * scaled).sum())
    return direction


def normalised(text: str) -> str:
    """Return a text's words only, so that texts that differ in case or punctuation are equal.

    Vowel signs of Hindi or Tamil count as punctuation; recorded logs depend on this.

    >>> normalised("What's  up?") == normalised("what s up")
    True
    """
    folded = fold_text(text)
    # Texts without words must stay different from each other.
    return " ".join(_WORD.findall(folded) or folded.split())


def part_of(text: str) -> Part:
    """Return the part of bfcl for a text, by a hash; equal texts are in the same part.

    The log is recorded on the first part. `load_targets` applies this to other sets: all texts that
    are not in bfcl's first part are for evaluation.

    Returns:
        The part; .6 of all texts are in the first.

    >>> part_of("Hello, world"), part_of("hello world!")
    ('ab', 'ab')
    """
    return "warm" if place_of(text) < WARM_SHARE else "ab"


def place_of(text: str) -> float:
    """Return a hash in [0, 1) of the normalised text."""
    digest = hashlib.sha256(normalised(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def without_repeats(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return the first target of each normalised text, in order; keeps targets without text."""
    first: dict[str, Target] = {}
    for place, target in enumerate(targets):
        # No normalised text holds a null character.
        key = f"\0{place}" if target.text is None else normalised(target.text)
        first.setdefault(key, target)
    return tuple(first.values())
