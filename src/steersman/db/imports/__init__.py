"""Import of logs from other systems: as evidence with known propensities, else as a warm start."""
