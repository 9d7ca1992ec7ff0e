"""``POST /tuner/evaluate``: the RAG tuner over HTTP."""
