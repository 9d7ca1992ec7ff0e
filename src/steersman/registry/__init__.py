"""The registry of signed snapshots: one TUF repository per tenant."""
