"""The RAG tuner (system 000): which retrieval configuration, from measured evaluations."""
