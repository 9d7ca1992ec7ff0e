"""Strategies: who asks for the next evaluation."""
