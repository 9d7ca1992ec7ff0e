-- Vectors of answers that the interrogator embedded before. A cache: any row may go at any time, and
-- nothing refers to one. The tenant is part of the key, so that nobody can tell what others cached.
CREATE TABLE answer_cache (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  key bytea NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 64),
  value bytea NOT NULL CHECK (octet_length(value) <= 1048576),
  created_at timestamptz NOT NULL DEFAULT now(),
  used_at timestamptz NOT NULL DEFAULT now(), -- to within an hour; what was used last goes last
  PRIMARY KEY (tenant, key)
);
-- Numbers that look random: compressing them would only cost time.
ALTER TABLE answer_cache ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE INDEX answer_cache_used ON answer_cache (tenant, used_at);

ALTER TABLE answer_cache ENABLE ROW LEVEL SECURITY;
ALTER TABLE answer_cache FORCE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON answer_cache
  USING (tenant = (SELECT nullif(current_setting('app.tenant', true), '')::uuid))
  WITH CHECK (tenant = (SELECT nullif(current_setting('app.tenant', true), '')::uuid));

GRANT SELECT, INSERT, DELETE ON answer_cache TO steersman_app;
GRANT UPDATE (value, used_at) ON answer_cache TO steersman_app;
