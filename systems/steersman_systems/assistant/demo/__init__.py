"""``steersman demo assistant``: its command, service, traffic and tables."""
