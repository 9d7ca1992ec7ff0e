"""Background workers: snapshot publisher and their metrics."""
