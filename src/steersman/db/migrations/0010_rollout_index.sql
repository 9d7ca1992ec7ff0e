-- What a controller asks of decisions, it asks of one rollout and a stretch of ids. Without this it
-- reads all decisions of the stretch to find the few of the rollout. Ordinary rows are not in it.
CREATE INDEX decision_rollout ON decision (tenant, rollout, id) WHERE rollout IS NOT NULL;
