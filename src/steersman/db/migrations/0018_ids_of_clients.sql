-- A decision that a client answered itself, under an id that another decision has, was answered as
-- stored and was not there.

CREATE OR REPLACE FUNCTION log_decisions(
  batch decision[], tenants uuid[], lows integer[], highs integer[], settling uuid[]
) RETURNS TABLE (asked uuid, earlier uuid, earlier_hash bytea)
-- Returns the rows that were not written because their key names an earlier decision, or because
-- their own id does. `settling` are those that get a reward when their window closes, come what may.
LANGUAGE plpgsql SECURITY INVOKER SET search_path = steersman, pg_temp AS $$
DECLARE
  part decision[];
  keyed boolean;
  by_clients boolean;
BEGIN
  SELECT bool_or(r.idempotency_key IS NOT NULL), bool_or(r.p_kind = 'client')
    INTO keyed, by_clients FROM unnest(batch) AS r;
  FOR t IN 1 .. cardinality(tenants) LOOP
    PERFORM set_config('app.tenant', tenants[t]::text, true);
    part := batch[lows[t]:highs[t]];
    IF keyed THEN
      INSERT INTO idempotency (tenant, kind, key, body_hash, decision)
        SELECT r.tenant, 'd', r.idempotency_key, r.body_hash, r.id
        FROM unnest(part) AS r WHERE r.idempotency_key IS NOT NULL ORDER BY r.idempotency_key
        ON CONFLICT DO NOTHING;
      -- A new statement sees what another transaction committed while the one above waited for it.
      RETURN QUERY
        SELECT r.id, f.decision, f.body_hash
        FROM unnest(part) AS r, LATERAL (
          SELECT i.decision, i.body_hash FROM idempotency AS i
          WHERE i.tenant = r.tenant AND i.kind = 'd' AND i.key = r.idempotency_key OFFSET 0
        ) AS f
        WHERE f.decision <> r.id;
      IF FOUND THEN
        part := ARRAY(
          SELECT r FROM unnest(part) AS r
          WHERE r.idempotency_key IS NULL OR r.id = (
            SELECT i.decision FROM idempotency AS i
            WHERE i.tenant = r.tenant AND i.kind = 'd' AND i.key = r.idempotency_key
          )
        );
      END IF;
    END IF;
    -- An id that is there already was written by a try whose answer got lost, or from its record.
    -- What was erased stays so, also when a client still brings its record, whose clock may run
    -- ahead. One search of an index for each row, as everywhere here.
    INSERT INTO decision
      SELECT r.* FROM unnest(part) AS r LEFT JOIN LATERAL (
        SELECT true AS erased FROM erasure AS e
        WHERE e.tenant = tenants[t] AND e.decision = r.id OFFSET 0
      ) AS f ON true
      WHERE f.erased IS NULL
      ON CONFLICT DO NOTHING;
    IF by_clients THEN
      -- Ids of clients are not ours: one that is there already may be another decision's.
      RETURN QUERY
        SELECT r.id, r.id, NULL::bytea
        FROM unnest(part) AS r, LATERAL (
          SELECT d.p_kind, d.skill, d.point, d.action FROM decision AS d WHERE d.id = r.id OFFSET 0
        ) AS f
        WHERE r.p_kind = 'client'
          AND (f.p_kind, f.skill, f.point, f.action) <> (r.p_kind, r.skill, r.point, r.action);
    END IF;
    IF settling <> '{}' THEN
      INSERT INTO work (tenant, skill, point, decision, due_at, traceparent)
        SELECT r.tenant, r.skill, r.point, r.id, r.window_ends, r.traceparent
        FROM unnest(part) AS r WHERE r.id = ANY (settling);
    END IF;
  END LOOP;
  PERFORM set_config('app.tenant', '', true);
END
$$;
