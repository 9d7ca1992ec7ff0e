"""Encoding of contexts as vectors: hashing, scaling and missing values."""

from __future__ import annotations

from steersman.features.feature_map import LAYOUT_VERSION, FeatureMap
from steersman.features.numbers import Statistics
from steersman.features.text_normal_form import (
    combining_marks,
    fold_text,
    folded_words,
    without_invisible,
)

__all__ = [
    "LAYOUT_VERSION",
    "FeatureMap",
    "Statistics",
    "combining_marks",
    "fold_text",
    "folded_words",
    "without_invisible",
]
