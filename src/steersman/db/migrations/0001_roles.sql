-- Three roles, none of which bypasses row-level security. `owner` migrates and owns every table and
-- is itself held by FORCE ROW LEVEL SECURITY; `app` reads and writes as one tenant; `worker` also
-- sees the work queue of all. Whoever runs this must be able to take on each of them.
-- This script runs as the user of DATABASE_URL, all others as steersman_owner.
DO $$
DECLARE
  name text;
  able boolean;
  -- Since version 16 who makes a role is a member of it without being able to take it on.
  asked text := CASE WHEN current_setting('server_version_num')::integer < 160000
                  THEN 'MEMBER' ELSE 'SET' END;
BEGIN
  FOREACH name IN ARRAY ARRAY['steersman_owner', 'steersman_app', 'steersman_worker'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE', name);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL; -- another database of this server made it meanwhile
      END;
    END IF;
    EXECUTE format('SELECT pg_has_role(%L, %L)', name, asked) INTO able;
    IF NOT able THEN -- a user that was given the roles need not be able to give them
      EXECUTE format('GRANT %I TO CURRENT_USER', name);
    END IF;
  END LOOP;
END
$$;

CREATE SCHEMA IF NOT EXISTS steersman AUTHORIZATION steersman_owner;
GRANT USAGE ON SCHEMA steersman TO steersman_app, steersman_worker;
