"""Search strategies: which configuration to evaluate next."""
