"""Declarations of decision points in YAML: the model, its validation and its errors."""
