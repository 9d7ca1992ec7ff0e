"""Detectors of personal data, toxic language and unstable answers."""
