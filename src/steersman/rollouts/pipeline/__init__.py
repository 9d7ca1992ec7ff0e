"""The pipeline of `steersman run`: dataset, trial, publication, rollout."""
