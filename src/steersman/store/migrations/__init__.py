"""The SQL of the store, in order; `steersman.store.migrate` applies what is new."""
