"""Research: synthetic worlds, trials and notebooks, in no wheel. See also ``benchmarks``."""
