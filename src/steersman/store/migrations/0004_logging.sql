-- Writing a batch in one round trip and one transaction. The caller hands over rows sorted by
-- tenant and key (crossing orders would deadlock), no key twice, and the slice of each tenant; every
-- slice is written as its own tenant, so each row is checked by the ordinary policy. Nothing here
-- runs with other rights than the caller's. Look-ups are LATERAL … OFFSET 0, so that each is one
-- search of an index with the whole key, whatever the statistics say of a table just made.

CREATE FUNCTION log_decisions(
  batch decision[], tenants uuid[], lows integer[], highs integer[], settling uuid[]
) RETURNS TABLE (asked uuid, earlier uuid, earlier_hash bytea)
-- Returns the rows that were not written because their key names an earlier decision. `settling`
-- are those that get a reward when their window closes, come what may.
LANGUAGE plpgsql SECURITY INVOKER SET search_path = steersman, pg_temp AS $$
DECLARE
  part decision[];
  keyed boolean := EXISTS (SELECT FROM unnest(batch) AS r WHERE r.idempotency_key IS NOT NULL);
BEGIN
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
    INSERT INTO decision SELECT r.* FROM unnest(part) AS r ON CONFLICT DO NOTHING;
    IF settling <> '{}' THEN
      INSERT INTO work (tenant, skill, point, decision, due_at, traceparent)
        SELECT r.tenant, r.skill, r.point, r.id, r.window_ends, r.traceparent
        FROM unnest(part) AS r WHERE r.id = ANY (settling);
    END IF;
  END LOOP;
  PERFORM set_config('app.tenant', '', true);
END
$$;

CREATE FUNCTION log_events(
  batch event[], tenants uuid[], lows integer[], highs integer[]
) RETURNS TABLE (owner uuid, event text, verdict "char")
-- Returns the rows that were not written: r, the same is there already; c, the id is there with
-- another body; u, no such decision or episode.
LANGUAGE plpgsql SECURITY INVOKER SET search_path = steersman, pg_temp AS $$
#variable_conflict use_column
DECLARE
  part event[];
  written text[];
  queued boolean := false;
BEGIN
  FOR t IN 1 .. cardinality(tenants) LOOP
    PERFORM set_config('app.tenant', tenants[t]::text, true);
    part := batch[lows[t]:highs[t]];
    WITH r AS MATERIALIZED (
      SELECT * FROM unnest(part)
    ), target AS MATERIALIZED (
      SELECT d.id, d.skill, d.point, d.episode
      FROM (SELECT DISTINCT decision FROM r WHERE decision IS NOT NULL) AS n, LATERAL (
        SELECT * FROM decision AS d WHERE d.tenant = tenants[t] AND d.id = n.decision OFFSET 0
      ) AS d
    ), fresh AS (
      INSERT INTO idempotency (tenant, kind, key, body_hash, decision)
        SELECT r.tenant, 'e', r.id, r.body_hash, r.decision
        FROM r
        WHERE r.decision IN (SELECT id FROM target) OR (r.decision IS NULL AND (
          SELECT true FROM decision AS d
          WHERE d.tenant = tenants[t] AND d.episode = r.episode LIMIT 1
        ))
        ORDER BY r.id
        ON CONFLICT DO NOTHING
        RETURNING key
    ), stored AS (
      INSERT INTO event SELECT r.* FROM r WHERE r.id IN (SELECT key FROM fresh)
    ), due AS (
      INSERT INTO work (tenant, skill, point, decision, due_at, traceparent)
        SELECT tenants[t], d.skill, d.point, d.id, max(r.received_at), max(r.traceparent)
        FROM r JOIN target AS d ON d.id = r.decision
        WHERE r.id IN (SELECT key FROM fresh)
          AND (r.outcomes IS NOT NULL OR r.action_taken IS NOT NULL)
        GROUP BY d.skill, d.point, d.id
    )
    SELECT coalesce(array_agg(key), '{}') INTO written FROM fresh;
    queued := queued OR written <> '{}';
    IF EXISTS (SELECT FROM decision_point AS p WHERE p.tenant = tenants[t] AND p.per_episode) THEN
      -- Every decision of the episode is credited with what happened to any of them.
      INSERT INTO work (tenant, skill, point, decision, due_at, traceparent)
        SELECT tenants[t], d.skill, d.point, d.id, max(r.received_at), max(r.traceparent)
        FROM unnest(part) AS r
        LEFT JOIN decision AS own ON own.tenant = tenants[t] AND own.id = r.decision
        JOIN decision AS d
          ON d.tenant = tenants[t] AND d.episode = coalesce(r.episode, own.episode)
        JOIN decision_point AS p
          ON p.tenant = tenants[t] AND p.skill = d.skill AND p.point = d.point AND p.per_episode
        WHERE r.id = ANY (written) AND r.outcomes IS NOT NULL AND d.id IS DISTINCT FROM r.decision
        GROUP BY d.skill, d.point, d.id;
    END IF;
    IF cardinality(written) < cardinality(part) THEN
      -- A new statement sees what another transaction committed while the one above waited for it.
      RETURN QUERY
        SELECT r.tenant, r.id, CASE
            WHEN f.key IS NULL THEN 'u'::"char"
            WHEN f.body_hash = r.body_hash THEN 'r'::"char"
            ELSE 'c'::"char"
          END
        FROM unnest(part) AS r
        LEFT JOIN LATERAL (
          SELECT * FROM idempotency AS i
          WHERE i.tenant = tenants[t] AND i.kind = 'e' AND i.key = r.id OFFSET 0
        ) AS f ON true
        WHERE r.id <> ALL (written);
    END IF;
  END LOOP;
  PERFORM set_config('app.tenant', '', true);
  IF queued THEN
    PERFORM pg_notify('steersman_work', '');
  END IF;
END
$$;
