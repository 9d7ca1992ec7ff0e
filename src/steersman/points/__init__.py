"""Decision points bound to features and policies: what a declaration becomes."""
