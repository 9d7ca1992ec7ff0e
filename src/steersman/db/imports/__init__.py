"""Import of logs from other systems: as evidence where propensities are known, else as a warm start."""
