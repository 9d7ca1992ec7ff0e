"""``steersman tune``: the RAG tuner on the command line."""
