-- Who may see what. One rule for every table: the row's tenant is the one set for the transaction.
-- `set_config('app.tenant', …, true)` sets it; after the transaction it is '' (hence nullif), and
-- no row matches. FORCE holds the owner to it as well.
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'steersman'::regnamespace AND c.relkind IN ('r', 'p')
  LOOP
    CONTINUE WHEN name = 'migration'; -- holds no tenant's rows, and only the owner may read it
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    CONTINUE WHEN name IN ('tenant', 'decision_default', 'event_default');
    EXECUTE format(
      'CREATE POLICY own_rows ON %I USING (tenant = %s) WITH CHECK (tenant = %2$s)',
      name, $x$ (SELECT nullif(current_setting('app.tenant', true), '')::uuid) $x$
    );
  END LOOP;
END
$$;

CREATE POLICY own_row ON tenant
  USING (id = nullif(current_setting('app.tenant', true), '')::uuid)
  WITH CHECK (id = nullif(current_setting('app.tenant', true), '')::uuid);
-- Names and ids of all tenants, for whoever administers the installation.
CREATE POLICY administer ON tenant FOR SELECT TO steersman_owner USING (true);

-- A key is found by whoever holds it: its keyed hash must be presented before its row is seen.
CREATE POLICY presented ON api_key FOR SELECT TO steersman_app
  USING (hash = ANY (
    SELECT decode(h, 'hex')
    FROM unnest(string_to_array(nullif(current_setting('app.key_hashes', true), ''), ',')) AS h
  ));

-- The queue of all tenants, and nothing else of theirs: who works on a row sets its tenant first.
CREATE POLICY see_all ON work FOR SELECT TO steersman_worker USING (true);
CREATE POLICY done_all ON work FOR DELETE TO steersman_worker USING (true);

GRANT SELECT ON
  tenant, api_key, spec, decision_point, snapshot, decision, event, outcome, idempotency, work,
  learner, update, reward, checkpoint, erasure, excluded, cold_export, audit
  TO steersman_app, steersman_worker;
REVOKE ALL ON api_key FROM steersman_worker;
GRANT INSERT ON decision, event, idempotency, work, audit TO steersman_app;
GRANT INSERT ON api_key TO steersman_app;
GRANT UPDATE (revoked_at) ON api_key TO steersman_app;
GRANT INSERT ON work, learner, update, reward, checkpoint, snapshot, excluded, audit
  TO steersman_worker;
GRANT DELETE ON work, checkpoint TO steersman_worker;
GRANT UPDATE ON learner TO steersman_worker;
GRANT UPDATE (snapshot, updated_at) ON decision_point TO steersman_worker;
