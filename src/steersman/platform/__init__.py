"""What is not about this field: PostgreSQL, HTTP, telemetry, files."""
