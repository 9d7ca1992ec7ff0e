"""Research: made-up worlds, trials and notebooks. Part of no wheel; see also ``benchmarks``."""
