-- Who pinned a point: the rollout that froze it, which alone lets it go; NULL: the drift guard, or
-- nobody. It means something only while the point is pinned.
ALTER TABLE decision_point ADD COLUMN pinned_by uuid;
GRANT UPDATE (pinned_by) ON decision_point TO steersman_worker;
