"""HTTP: bodies, connection limits, timeouts."""
