-- Snapshots that are published: a state of a line, frozen under a version of its own. A line is a
-- snapshot and the updates numbered after it; `line` and `line_seq` say which state was frozen. The
-- row is written before anything is published (`published_at` is NULL until it was), so that a
-- publisher which was stopped goes on with the same version and the same bytes.
ALTER TABLE snapshot
  ADD COLUMN algorithm text,     -- NULL in rows of earlier versions: the declaration names it
  ADD COLUMN samples bigint,     -- decisions that the state learned from
  ADD COLUMN line text COLLATE "C",
  ADD COLUMN line_seq bigint,
  ADD COLUMN description jsonb,  -- as it was signed
  ADD COLUMN published_at timestamptz,
  ADD COLUMN retracted_at timestamptz,
  -- NULL: removed, since it had learned from a decision that was erased.
  ALTER COLUMN state DROP NOT NULL,
  ADD CONSTRAINT snapshot_reason CHECK (reason IN ('declared', 'rebuilt', 'published')),
  ADD CONSTRAINT snapshot_line CHECK (
    (reason = 'published') = (line IS NOT NULL) AND (line IS NULL) = (line_seq IS NULL)
    AND line_seq >= 0 AND line <> id),
  ADD CONSTRAINT snapshot_published CHECK (
    published_at IS NULL OR (reason = 'published' AND description IS NOT NULL)),
  ADD CONSTRAINT snapshot_retracted CHECK (retracted_at IS NULL OR reason = 'published');
-- The same state of the same line under the same declaration has one version, whoever publishes it.
CREATE UNIQUE INDEX snapshot_frozen ON snapshot
  (tenant, skill, point, line, line_seq, spec_hash, sha256)
  WHERE reason = 'published' AND retracted_at IS NULL;

-- What serves is the line as far as it goes (NULL), or always its state after this many updates.
ALTER TABLE decision_point ADD COLUMN pinned_seq bigint CHECK (pinned_seq >= 0);

GRANT UPDATE (description, published_at, retracted_at) ON snapshot TO steersman_worker;
GRANT INSERT ON spec TO steersman_worker; -- of a candidate that was never declared
GRANT UPDATE (spec_hash, feature_hash, per_episode, pinned_seq) ON decision_point
  TO steersman_worker;
