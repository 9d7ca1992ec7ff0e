"""Training of policies that select a sequence of candidates."""
