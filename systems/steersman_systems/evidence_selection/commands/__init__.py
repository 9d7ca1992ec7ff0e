"""``steersman evidence``: evidence selection on the command line."""
