-- One partition of decisions and events per day, made ahead of time; what comes for a day without
-- one is kept in the default partition. A partition is reached through its table alone: no role but
-- the owner may name it, and without a policy of its own it shows nothing.

CREATE FUNCTION first_id(day date) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog AS $$
  SELECT (lpad(to_hex((extract(epoch FROM day) * 1000)::bigint), 12, '0')
          || '00000000000000000000')::uuid
$$;

CREATE FUNCTION make_partitions(first date, days integer) RETURNS integer
-- Returns how many were made; a day whose rows are in the default partition already is left there.
LANGUAGE plpgsql SECURITY INVOKER SET search_path = steersman, pg_temp AS $$
DECLARE
  day date;
  child text;
  made integer := 0;
BEGIN
  FOR i IN 0 .. days - 1 LOOP
    day := first + i;
    FOREACH child IN ARRAY ARRAY['decision', 'event'] LOOP
      CONTINUE WHEN to_regclass(format('%s_%s', child, to_char(day, 'YYYYMMDD'))) IS NOT NULL;
      BEGIN
        EXECUTE format(
          'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
          format('%s_%s', child, to_char(day, 'YYYYMMDD')), child,
          CASE child WHEN 'decision' THEN first_id(day)::text ELSE day || 'T00:00Z' END,
          CASE child WHEN 'decision' THEN first_id(day + 1)::text ELSE day + 1 || 'T00:00Z' END
        );
        EXECUTE format(
          'ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY',
          format('%s_%s', child, to_char(day, 'YYYYMMDD'))
        );
        made := made + 1;
      EXCEPTION WHEN check_violation OR duplicate_table THEN
        RAISE NOTICE 'day % of % stays in the default partition', day, child;
      END;
    END LOOP;
  END LOOP;
  RETURN made;
END
$$;

-- Nothing here is for everybody, though it has no other rights than the caller's.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA steersman FROM PUBLIC;
GRANT EXECUTE ON FUNCTION log_decisions, log_events TO steersman_app;
GRANT EXECUTE ON FUNCTION first_id TO steersman_app, steersman_worker;
