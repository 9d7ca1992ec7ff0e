"""The classifier of hateful and offensive words that comes out of a wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.platform.wheel_files import PinnedWheel
from steersman.providers.detectors.toxicity import Toxicity

if TYPE_CHECKING:
    from pathlib import Path

HATESONAR = PinnedWheel(
    project="hatesonar",
    version="0.1.0",
    filename="hatesonar-0.1.0-py3-none-any.whl",
    sha256="969c56618bd628b3cb9b69d4e5170b461c8270737d2b0eb37ba0d55e207e9f37",
    size=222_593,
    licence="MIT",
)
_MEMBER = "hatesonar/model/model.onnx"


def toxicity(home: Path | None = None, *, threshold: float = 0.5) -> Toxicity:
    """Return the detector with HateSonar's weights, fetched once by their hash (0.2 MB).

    It is a logistic regression over words, trained on English tweets: it knows swear words at once,
    in friendly company too, and most threats not at all. A person looks at what it flags.

    Args:
        threshold: probability above which a text is flagged, 0 to 1.

    Raises:
        DataError: the extra ``rag`` is not installed, or the wheel cannot be fetched.
        InputError: a threshold out of its range.

    Source: Davidson, Warmsley, Macy & Weber, Automated Hate Speech Detection and the Problem of
    Offensive Language (2017): its data, and how far classifiers confuse the two.
    """
    HATESONAR.fetch(home)
    return Toxicity(HATESONAR.read({_MEMBER: 3_000_000}, home)[_MEMBER], threshold=threshold)
