"""Steersman learns the choices inside LLM and RAG applications, and ships what it learns safely."""

__version__ = "0.1.0"
