"""The RAG tuner (system 000): chooses a retrieval configuration from measured evaluations."""
