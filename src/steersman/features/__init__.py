"""Contexts as vectors: hashing, scaling, and meanings for what is missing."""

from __future__ import annotations

from steersman.features.feature_map import LAYOUT_VERSION, FeatureMap
from steersman.features.folding import fold_text
from steersman.features.numbers import Statistics

__all__ = ["LAYOUT_VERSION", "FeatureMap", "Statistics", "fold_text"]
