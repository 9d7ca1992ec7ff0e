"""Providers of model calls: chat backends, local models, limits, judges and detectors."""
