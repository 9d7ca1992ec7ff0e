-- Rollouts: where each stands, what was judged of it and from which numbers, and what went wrong.
CREATE TABLE rollout (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  skill text COLLATE "C" NOT NULL,
  point text COLLATE "C" NOT NULL,
  status text NOT NULL
    CHECK (status IN ('running', 'paused', 'promoted', 'rolled_back', 'aborted')),
  stage text NOT NULL CHECK (stage IN ('shadow', 'canary', 'ab', 'live')),
  step integer NOT NULL CHECK (step >= 0),
  share double precision NOT NULL CHECK (share >= 0 AND share <= 1),
  salt text NOT NULL,
  candidate text COLLATE "C" NOT NULL, -- a published version, always its state after no update
  control text COLLATE "C" NOT NULL,   -- what served at the start: this snapshot
  control_seq bigint NOT NULL CHECK (control_seq >= 0), -- and this many updates after it
  plan jsonb NOT NULL,
  concurrent boolean NOT NULL,         -- whether the skill may have others under way beside it
  started_at timestamptz NOT NULL DEFAULT now(),
  step_started_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz,
  epoch bigint NOT NULL DEFAULT 0,     -- grows with every holder; a write under an older one fails
  holder text NOT NULL DEFAULT '',
  seen_at timestamptz NOT NULL DEFAULT now(), -- when the holder was last heard of
  reason text NOT NULL DEFAULT '',     -- why it is as it is
  PRIMARY KEY (tenant, id),
  CHECK ((status IN ('running', 'paused')) = (ended_at IS NULL))
);
-- A point has one candidate at most; a skill too, but for rollouts that may run beside others.
CREATE UNIQUE INDEX rollout_of_point ON rollout (tenant, skill, point)
  WHERE status IN ('running', 'paused');
CREATE UNIQUE INDEX rollout_of_skill ON rollout (tenant, skill)
  WHERE status IN ('running', 'paused') AND NOT concurrent;

-- Which rollouts a controller has to look at, of all tenants and nothing else of theirs; like `work`.
CREATE TABLE rollout_task (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  rollout uuid NOT NULL,
  due_at timestamptz NOT NULL,
  PRIMARY KEY (tenant, rollout)
);
CREATE INDEX rollout_task_due ON rollout_task (due_at);

CREATE TABLE verdict (
  tenant uuid NOT NULL,
  rollout uuid NOT NULL,
  seq integer NOT NULL, -- 1, 2, 3, … without gaps
  at timestamptz NOT NULL DEFAULT now(),
  stage text NOT NULL,
  step integer NOT NULL,
  share double precision NOT NULL,
  verdict text NOT NULL CHECK (verdict IN ('promote', 'hold', 'roll_back', 'not_enough_data')),
  acted text NOT NULL
    CHECK (acted IN ('none', 'next_stage', 'promoted', 'rolled_back', 'held')),
  inputs jsonb NOT NULL, -- every number that the verdict follows from
  reasons text[] NOT NULL,
  PRIMARY KEY (tenant, rollout, seq)
);

CREATE TABLE incident (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  rollout uuid,         -- NULL: of a decision point that no rollout of was under way
  at timestamptz NOT NULL DEFAULT now(),
  kind text NOT NULL,
  summary text NOT NULL,
  detail jsonb NOT NULL,
  closed_at timestamptz,
  PRIMARY KEY (tenant, id)
);

DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['rollout', 'rollout_task', 'verdict', 'incident'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format(
      'CREATE POLICY own_rows ON %I USING (tenant = %s) WITH CHECK (tenant = %2$s)',
      name, $x$ (SELECT nullif(current_setting('app.tenant', true), '')::uuid) $x$
    );
  END LOOP;
END
$$;
CREATE POLICY see_all ON rollout_task FOR SELECT TO steersman_worker USING (true);

-- Who serves reads them; who controls writes them, and never takes a verdict back.
GRANT SELECT ON rollout, verdict, incident TO steersman_app, steersman_worker;
GRANT SELECT, INSERT, DELETE ON rollout_task TO steersman_worker;
GRANT UPDATE (due_at) ON rollout_task TO steersman_worker;
GRANT INSERT ON rollout, verdict, incident TO steersman_worker;
GRANT UPDATE (status, stage, step, share, step_started_at, ended_at, epoch, holder, seen_at, reason)
  ON rollout TO steersman_worker;
GRANT UPDATE (closed_at) ON incident TO steersman_worker;
