"""Logs, traces and metrics exposition."""
