"""Serving of decision points: micro-batches, draws, arms, replicas and explanations."""
