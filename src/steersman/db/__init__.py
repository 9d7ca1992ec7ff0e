"""The rows of the loop in PostgreSQL, by noun; all SQL of the product is here or in `platform.postgres`."""
