"""``steersman demo interrogator``: its command and tables."""
