"""Judges: faithfulness, relevancy, pairwise preference, and their agreement with people."""
