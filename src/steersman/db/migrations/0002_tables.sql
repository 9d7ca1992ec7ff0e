-- The rows of the loop. Every table holds its tenant first, in its primary key too, so that no
-- unique index can tell one tenant about another's ids. Ids of decisions are UUIDv7: they carry
-- their time, so decisions are partitioned by id and found in their partition by id alone.
-- Names and keys are compared byte by byte (COLLATE "C"): no rules of a language apply to them, and
-- an index over them costs half.

CREATE TABLE tenant (
  id uuid PRIMARY KEY,
  name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_key (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  prefix text NOT NULL, -- the first characters of the key, for people
  hash bytea NOT NULL,  -- HMAC-SHA256 of the key under the service's secret; the key is not kept
  role text NOT NULL,
  scopes text[] NOT NULL CHECK (scopes <@ ARRAY['decide', 'events', 'read', 'admin']),
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  rotated_from uuid,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX api_key_hash ON api_key (hash);

CREATE TABLE spec (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  hash bytea NOT NULL,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  document text NOT NULL, -- the YAML as it was declared
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, hash)
);

CREATE TABLE decision_point (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  spec_hash bytea NOT NULL,
  feature_hash bytea NOT NULL,
  snapshot text COLLATE "C" NOT NULL,
  per_episode boolean NOT NULL, -- whether outcomes credit every decision of the episode
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, skill, point),
  FOREIGN KEY (tenant, spec_hash) REFERENCES spec (tenant, hash)
);

CREATE TABLE snapshot (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL, -- a version such as 0.1.0; a relearned state is a minor version
  parent text,
  spec_hash bytea NOT NULL,
  feature_hash bytea NOT NULL,
  reason text NOT NULL,
  state bytea NOT NULL, -- safetensors
  sha256 bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, skill, point, id)
);

CREATE TABLE decision (
  tenant uuid NOT NULL,
  id uuid NOT NULL,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  episode text COLLATE "C",
  parent uuid,
  unit text COLLATE "C",
  rollout text,
  stage text NOT NULL,
  arm text NOT NULL,
  snapshot text COLLATE "C" NOT NULL,
  update_seq bigint NOT NULL,
  spec_hash bytea NOT NULL,
  feature_hash bytea NOT NULL,
  context jsonb NOT NULL,
  eligible text[],      -- NULL: every declared action
  distribution real[] NOT NULL, -- over the declared actions, or over eligible where they are open
  action text NOT NULL,
  p double precision,
  p_kind text NOT NULL CHECK (p_kind IN ('exact', 'fallback', 'client', 'imported', 'none')),
  x real[],             -- as used for the action drawn; NULL where the policy uses a key or nothing
  key text COLLATE "C",
  features real[],      -- of all eligible actions, row after row, where the point declares them
  u double precision,
  degraded boolean NOT NULL,
  weight real NOT NULL, -- how many observations it counts for when it is learned; 0: never learned
  idempotency_key text COLLATE "C",
  body_hash bytea,      -- of the request, where it has a key
  traceparent text,
  at timestamptz NOT NULL,
  window_ends timestamptz NOT NULL, -- when its reward is final
  PRIMARY KEY (tenant, id),
  CHECK ((p_kind = 'none') = (p IS NULL)),
  CHECK (p IS NULL OR (p > 0 AND p <= 1))
) PARTITION BY RANGE (id);
CREATE INDEX decision_episode ON decision (tenant, episode) WHERE episode IS NOT NULL;
CREATE TABLE decision_default PARTITION OF decision DEFAULT;

CREATE TABLE event (
  tenant uuid NOT NULL,
  id text COLLATE "C" NOT NULL,     -- from the client
  decision uuid,
  episode text COLLATE "C",
  type text NOT NULL,
  schema_version smallint NOT NULL,
  at timestamptz NOT NULL,
  received_at timestamptz NOT NULL,
  outcomes jsonb,
  action_taken text,
  body jsonb,
  body_hash bytea NOT NULL,
  traceparent text,
  CHECK (decision IS NOT NULL OR episode IS NOT NULL)
) PARTITION BY RANGE (received_at);
-- That an id is stored once is the business of `idempotency`: a partition knows only itself.
CREATE INDEX event_decision ON event (tenant, decision) WHERE decision IS NOT NULL;
CREATE INDEX event_episode ON event (tenant, episode) WHERE episode IS NOT NULL;
CREATE TABLE event_default PARTITION OF event DEFAULT;

CREATE VIEW outcome WITH (security_invoker = true) AS
  SELECT e.tenant, e.decision, e.episode, o.key AS name, o.value::double precision AS value,
         e.id AS event, e.at, e.received_at
  FROM event AS e, jsonb_each_text(e.outcomes) AS o
  WHERE e.outcomes IS NOT NULL;

CREATE TABLE idempotency (
  tenant uuid NOT NULL,
  kind "char" NOT NULL, -- d: a decision's key, e: an event's id
  key text COLLATE "C" NOT NULL,
  body_hash bytea NOT NULL,
  decision uuid,
  at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, kind, key)
);

CREATE TABLE work (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant uuid NOT NULL,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  decision uuid NOT NULL,
  due_at timestamptz NOT NULL,
  traceparent text,
  at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX work_due ON work (due_at);

CREATE TABLE learner (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL, -- grows with every holder; a write under an older one is refused
  holder text NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT now(), -- when the holder was last heard of
  snapshot text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,   -- the last number given out in `update` for this snapshot
  PRIMARY KEY (tenant, skill, point)
);

CREATE TABLE update (
  tenant uuid NOT NULL,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  snapshot text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,   -- 1, 2, 3, … without gaps
  decision uuid NOT NULL,
  revision integer NOT NULL,
  x real[],
  key text COLLATE "C",
  action text NOT NULL,
  reward_change double precision NOT NULL,
  weight_change double precision NOT NULL, -- 1: learned; 0: corrected; -1: withdrawn; times weight
  weight real NOT NULL,
  bucket bigint NOT NULL,
  traceparent text,
  at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, skill, point, snapshot, seq)
);
CREATE INDEX update_decision ON update (tenant, decision);

CREATE TABLE reward (
  tenant uuid NOT NULL,
  decision uuid NOT NULL,
  revision integer NOT NULL,
  spec_hash bytea NOT NULL,
  value double precision,
  status text NOT NULL,
  terms jsonb NOT NULL,
  final boolean NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, decision, revision)
);

CREATE TABLE checkpoint (
  tenant uuid NOT NULL,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  snapshot text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  state bytea NOT NULL, -- safetensors
  sha256 bytea NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, skill, point, snapshot, seq)
);

CREATE TABLE erasure (
  tenant uuid NOT NULL,
  decision uuid NOT NULL,
  episode text COLLATE "C", -- it was part of: events about that episode as a whole are gone too
  reason text NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, decision)
);

CREATE TABLE excluded (
  tenant uuid NOT NULL,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  snapshot text COLLATE "C" NOT NULL,
  decision uuid NOT NULL, -- never learned into this snapshot, nor into those relearned from it
  PRIMARY KEY (tenant, skill, point, snapshot, decision)
);

CREATE TABLE cold_export (
  tenant uuid NOT NULL,
  dataset text COLLATE "C" NOT NULL,
  day date NOT NULL,
  generation integer NOT NULL,
  path text NOT NULL,
  rows bigint NOT NULL,
  sha256 bytea NOT NULL,
  source text NOT NULL DEFAULT '', -- what the hot rows and erasures were; another one means news
  at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, dataset, day, generation)
);

CREATE TABLE audit (
  tenant uuid NOT NULL,
  id uuid NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  actor text NOT NULL,
  action text NOT NULL,
  subject text NOT NULL,
  detail jsonb NOT NULL,
  PRIMARY KEY (tenant, id)
);
