"""Background workers: learner, rollout controller, snapshot publisher, and their metrics."""
