"""Confidence intervals, tests and sample sizes, with their assumptions."""

from __future__ import annotations

from steersman.stats.bca import bca_interval
from steersman.stats.comparisons import (
    Comparison,
    SampleRatio,
    cuped_adjust,
    non_inferiority_test,
    sample_ratio_test,
    welch_test,
)
from steersman.stats.crossed import crossed_mean
from steersman.stats.group_sequential import group_sequential_bounds
from steersman.stats.interval import (
    Interval,
    all_alike_interval,
    bernstein_half_width,
    empirical_bernstein,
)
from steersman.stats.power import achieved_power, minimum_detectable_effect, required_sample_size
from steersman.stats.sequential import (
    Moments,
    asymptotic_confidence_sequence,
    msprt,
    sequential_sample_ratio_test,
    two_arm_confidence_sequence,
)
from steersman.stats.survival import Estimate, SurvivalCurve, kaplan_meier

__all__ = [
    "Comparison",
    "Estimate",
    "Interval",
    "Moments",
    "SampleRatio",
    "SurvivalCurve",
    "achieved_power",
    "all_alike_interval",
    "asymptotic_confidence_sequence",
    "bca_interval",
    "bernstein_half_width",
    "crossed_mean",
    "cuped_adjust",
    "empirical_bernstein",
    "group_sequential_bounds",
    "kaplan_meier",
    "minimum_detectable_effect",
    "msprt",
    "non_inferiority_test",
    "required_sample_size",
    "sample_ratio_test",
    "sequential_sample_ratio_test",
    "two_arm_confidence_sequence",
    "welch_test",
]
