"""Shared parts of the systems' reports: HTML pages, charts, MLflow."""
