"""Documents from files, and their passages."""
