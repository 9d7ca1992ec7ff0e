-- Three roles, none of which bypasses row-level security. `owner` migrates and owns every table and
-- is itself held by FORCE ROW LEVEL SECURITY; `app` reads and writes as one tenant; `worker` also
-- sees the work queue of all. Whoever runs this must be able to take on each of them.
-- This script runs as the user of DATABASE_URL, all others as steersman_owner.
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['steersman_owner', 'steersman_app', 'steersman_worker'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE', name);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL; -- another database of this server made it meanwhile
      END;
    END IF;
    EXECUTE format('GRANT %I TO CURRENT_USER', name);
  END LOOP;
END
$$;

CREATE SCHEMA IF NOT EXISTS steersman AUTHORIZATION steersman_owner;
GRANT USAGE ON SCHEMA steersman TO steersman_app, steersman_worker;
