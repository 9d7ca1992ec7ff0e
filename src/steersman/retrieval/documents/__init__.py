"""Documents read from files, and the passages they are cut into."""
