"""Training of policies that need more than sums: PPO, behaviour cloning, RAFT and trees."""
