"""Detectors of unwanted content in answers: personal data, toxicity and instability.

A `Detector` flags parts of a text; `violations` says which answers of a batch are flagged. Flagged
texts go to the review list (`steersman.store.file_for_review`), where a person decides.
"""

from __future__ import annotations

from steersman.llm.detectors.flags import Detector, Flag, detect_all, violations
from steersman.llm.detectors.instability import Instability
from steersman.llm.detectors.national_ids import find_national_ids
from steersman.llm.detectors.personal import PersonalData
from steersman.llm.detectors.toxicity import Toxicity

__all__ = [
    "Detector",
    "Flag",
    "Instability",
    "PersonalData",
    "Toxicity",
    "detect_all",
    "find_national_ids",
    "violations",
]
