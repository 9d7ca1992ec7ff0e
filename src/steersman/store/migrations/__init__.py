"""SQL migrations of the store; `steersman.store.migrate` applies them in order."""
