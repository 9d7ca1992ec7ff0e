"""What a detector says of a text, and the seam that all of them stand behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that a person should look at.

    Args:
        detector: who says so.
        kind: what it is, in a word: ``card``, ``es_dni``, ``offensive``, ``answers_differ``.
        score: how sure, in [0, 1]; 1 where a rule says it.
        start: of the place in the text; 0 if it is the whole.
        end: behind the place.
    """

    detector: str
    kind: str
    score: float
    start: int
    end: int


class Detector(Protocol):
    """Whatever finds in a text what should not be in an answer."""

    @property
    def name(self) -> str:
        """What it is called in flags and in the review list."""

    def detect(self, text: str) -> tuple[Flag, ...]:
        """Return what it finds.

        Args:
            text: text.

        Returns:
            Flags in the order of their places; none is no promise that there is nothing.
        """


def detect_all(detectors: Sequence[Detector], text: str) -> tuple[Flag, ...]:
    """Return what any of some detectors finds in a text.

    Args:
        detectors: each is asked.
        text: text.

    Returns:
        Flags by detector, in their order.
    """
    return tuple(flag for one in detectors for flag in one.detect(text))


def violations(detectors: Sequence[Detector], answers: Sequence[str]) -> NDArray[np.bool_]:
    """Return which answers any detector flags: what a batch of the tuner is charged for.

    Args:
        detectors: each is asked.
        answers: of a batch.

    Returns:
        (answers,) of whether it was flagged.
    """
    return np.array([bool(detect_all(detectors, one)) for one in answers], np.bool_)
