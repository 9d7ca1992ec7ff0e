"""Training: PPO, the optimiser of all networks, and parallel maps."""
