"""``steersman demo evidence``: its command and output."""
