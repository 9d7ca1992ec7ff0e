"""Detector interface and flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Flag:
    """Finding for a human review.

    Args:
        detector: detector name.
        kind: kind of finding: ``card``, ``es_dni``, ``offensive``, ``answers_differ``.
        score: confidence in [0, 1]; 1 for a rule.
        start: start offset in the text; 0 for the whole text.
        end: end offset, exclusive.
    """

    detector: str
    kind: str
    score: float
    start: int
    end: int


class Detector(Protocol):
    """Interface of a detector of unwanted content."""

    @property
    def name(self) -> str:
        """Name in flags and in the review list."""

    def detect(self, text: str) -> tuple[Flag, ...]:
        """Return the flags of a text.

        Returns:
            Flags by position; an empty result is not a guarantee.
        """


def detect_all(detectors: Sequence[Detector], text: str) -> tuple[Flag, ...]:
    """Return the flags of several detectors."""
    return tuple(flag for one in detectors for flag in one.detect(text))


def violations(detectors: Sequence[Detector], answers: Sequence[str]) -> NDArray[np.bool_]:
    """Return which answers of a batch any detector flags."""
    return np.array([bool(detect_all(detectors, one)) for one in answers], np.bool_)
