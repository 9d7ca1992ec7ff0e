"""2WikiMultihopQA: in the format of HotpotQA, in files of other names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.systems.leadr.sets import hotpotqa

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.systems.leadr.sets.evidence_set import EvidenceSet


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the development questions, or the training ones where there are no others.

    Args:
        folder: as it is published.
        name: of the set.
        at_most: unused: all candidates of all questions are read.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    return hotpotqa.load(folder, name, at_most, patterns=hotpotqa.TWO_WIKI)
