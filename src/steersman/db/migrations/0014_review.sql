-- The review list: what a detector flagged, until a person has looked at it.
--
-- Texts are kept as whoever files them masked them: what was found must not be kept again here.
-- Evaluations file rows and a person resolves them as role owner; the service may read them.

CREATE TABLE review (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  at timestamptz NOT NULL,
  detector text NOT NULL CHECK (octet_length(detector) BETWEEN 1 AND 100),
  kinds text[] NOT NULL,
  score double precision NOT NULL CHECK (score >= 0 AND score <= 1),
  -- Where it was found: a decision, or an answer of an evaluation. Once there it is filed once.
  subject text COLLATE "C" NOT NULL CHECK (octet_length(subject) BETWEEN 1 AND 500),
  excerpt text NOT NULL CHECK (octet_length(excerpt) <= 20000),
  verdict text CHECK (verdict IN ('confirmed', 'dismissed')), -- NULL: nobody has looked yet
  note text NOT NULL DEFAULT '',
  resolved_at timestamptz,
  resolved_by text,
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, subject, detector),
  CHECK ((verdict IS NULL) = (resolved_at IS NULL)
    AND (verdict IS NULL) = (resolved_by IS NULL))
);
CREATE INDEX review_open ON review (tenant, at) WHERE verdict IS NULL;

ALTER TABLE review ENABLE ROW LEVEL SECURITY;
ALTER TABLE review FORCE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON review
  USING (tenant = (SELECT nullif(current_setting('app.tenant', true), '')::uuid))
  WITH CHECK (tenant = (SELECT nullif(current_setting('app.tenant', true), '')::uuid));

GRANT SELECT ON review TO steersman_app;
