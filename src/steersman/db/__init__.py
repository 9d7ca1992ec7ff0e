"""The rows of the loop, by noun; all SQL of the product is here or in `platform.postgres`."""
