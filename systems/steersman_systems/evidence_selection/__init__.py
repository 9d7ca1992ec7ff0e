"""Evidence selection (system 001, LEADR): which passages to select for a question."""
