"""SQL migrations of the store; `steersman.db.migrate` applies them in order."""
