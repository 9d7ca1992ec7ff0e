"""Rollouts: plans, evidence, verdicts and staged release with automatic rollback."""
