"""Readers of question sets, one module per published format."""
