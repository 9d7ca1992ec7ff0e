-- The audit as a chain: every row of a tenant has the next number and the hash of the row before it,
-- and no role changes or removes one. The database numbers and hashes, so that who may add a row
-- still cannot choose its place. What is hashed is described in docs/reference/audit.md; it depends
-- on the values of a row and not on how PostgreSQL writes them, so that others can compute it.

CREATE FUNCTION canonical_json(value jsonb) RETURNS text
-- Keys in the order of their code points, no spaces, numbers in plain decimals without an exponent
-- or trailing zeros.
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SECURITY INVOKER
SET search_path = steersman, pg_temp AS $$
BEGIN
  CASE jsonb_typeof(value)
  WHEN 'object' THEN
    RETURN '{' || coalesce((
      SELECT string_agg(to_json(e.key)::text || ':' || canonical_json(e.value), ','
                        ORDER BY e.key COLLATE "C")
      FROM jsonb_each(value) AS e), '') || '}';
  WHEN 'array' THEN
    RETURN '[' || coalesce((
      SELECT string_agg(canonical_json(e.value), ',' ORDER BY e.place)
      FROM jsonb_array_elements(value) WITH ORDINALITY AS e (value, place)), '') || ']';
  WHEN 'number' THEN
    RETURN trim_scale((value #>> '{}')::numeric)::text;
  ELSE
    RETURN value::text;
  END CASE;
END
$$;

ALTER TABLE audit
  ADD COLUMN seq bigint,      -- 1, 2, 3, … of its tenant, without gaps
  ADD COLUMN prev_hash bytea, -- of the row before; 32 zero bytes where there is none
  ADD COLUMN hash bytea;

CREATE FUNCTION audit_hash(entry audit) RETURNS bytea
LANGUAGE sql STABLE SECURITY INVOKER SET search_path = steersman, pg_temp AS $$
  SELECT sha256(convert_to(canonical_json(jsonb_build_object(
    'tenant', entry.tenant, 'seq', entry.seq, 'id', entry.id,
    'at', to_char(entry.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'actor', entry.actor, 'action', entry.action, 'subject', entry.subject,
    'detail', entry.detail, 'prev_hash', encode(entry.prev_hash, 'hex')
  )), 'UTF8'))
$$;

-- The rows that are there, of every tenant, in the order in which they were read so far.
ALTER TABLE audit NO FORCE ROW LEVEL SECURITY;
DO $$
DECLARE
  entry audit;
  last audit;
BEGIN
  FOR entry IN SELECT * FROM audit ORDER BY tenant, at, id LOOP
    IF last.tenant IS DISTINCT FROM entry.tenant THEN
      last := NULL;
    END IF;
    entry.seq := coalesce(last.seq, 0) + 1;
    entry.prev_hash := coalesce(last.hash, decode(repeat('00', 32), 'hex'));
    entry.hash := audit_hash(entry);
    UPDATE audit SET seq = entry.seq, prev_hash = entry.prev_hash, hash = entry.hash
      WHERE tenant = entry.tenant AND id = entry.id;
    last := entry;
  END LOOP;
END
$$;
ALTER TABLE audit FORCE ROW LEVEL SECURITY;
ALTER TABLE audit
  ALTER COLUMN seq SET NOT NULL, ALTER COLUMN prev_hash SET NOT NULL, ALTER COLUMN hash SET NOT NULL;
CREATE UNIQUE INDEX audit_seq ON audit (tenant, seq);

CREATE FUNCTION chain_audit() RETURNS trigger
-- Writers of one tenant take turns until they commit: there is no gap where one of them rolls back.
LANGUAGE plpgsql SECURITY INVOKER SET search_path = steersman, pg_temp AS $$
DECLARE
  last audit;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('audit/' || NEW.tenant, 0));
  -- A new statement sees what another transaction committed while the one above waited for it.
  SELECT * INTO last FROM audit WHERE tenant = NEW.tenant ORDER BY seq DESC LIMIT 1;
  NEW.seq := coalesce(last.seq, 0) + 1;
  NEW.prev_hash := coalesce(last.hash, decode(repeat('00', 32), 'hex'));
  NEW.at := clock_timestamp(); -- not now(): the order of numbers is that of times
  NEW.hash := audit_hash(NEW);
  RETURN NEW;
END
$$;
CREATE TRIGGER chain BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION chain_audit();

CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql SECURITY INVOKER SET search_path = steersman, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed or removed', TG_TABLE_NAME
    USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER unchanged BEFORE UPDATE OR DELETE ON audit
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER whole BEFORE TRUNCATE ON audit
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
REVOKE UPDATE, DELETE, TRUNCATE ON audit FROM steersman_owner;

REVOKE ALL ON FUNCTION canonical_json, audit_hash, chain_audit, refuse_change FROM PUBLIC;
GRANT EXECUTE ON FUNCTION canonical_json, audit_hash TO steersman_app, steersman_worker;
