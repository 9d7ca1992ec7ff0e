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
    -- What was erased stays so, also when a client still brings its record; a new id cannot be.
    INSERT INTO decision
      SELECT r.* FROM unnest(part) AS r
      WHERE r.at > now() - interval '10 seconds' OR NOT EXISTS (
        SELECT FROM erasure AS e WHERE e.tenant = tenants[t] AND e.decision = r.id
      )
      ON CONFLICT DO NOTHING;
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
-- another body; u, no such decision or episode. What nearly every batch does, all known and all new,
-- takes three plain statements; the others pay for finding out.
LANGUAGE plpgsql SECURITY INVOKER SET search_path = steersman, pg_temp AS $$
#variable_conflict use_column
DECLARE
  part event[];
  fresh event[];
  unknown text[];
  written integer;
  queued boolean := false;
BEGIN
  FOR t IN 1 .. cardinality(tenants) LOOP
    PERFORM set_config('app.tenant', tenants[t]::text, true);
    part := batch[lows[t]:highs[t]];
    unknown := ARRAY(
      SELECT r.id FROM unnest(part) AS r
      WHERE CASE WHEN r.decision IS NOT NULL
        THEN (SELECT true FROM decision AS d
              WHERE d.tenant = tenants[t] AND d.id = r.decision LIMIT 1)
        ELSE (SELECT true FROM decision AS d
              WHERE d.tenant = tenants[t] AND d.episode = r.episode LIMIT 1)
      END IS NULL
    );
    IF unknown <> '{}' THEN
      RETURN QUERY SELECT tenants[t], u, 'u'::"char" FROM unnest(unknown) AS u;
      part := ARRAY(SELECT r FROM unnest(part) AS r WHERE r.id <> ALL (unknown));
      CONTINUE WHEN part = '{}';
    END IF;
    INSERT INTO idempotency (tenant, kind, key, body_hash, decision)
      SELECT r.tenant, 'e', r.id, r.body_hash, r.decision FROM unnest(part) AS r
      ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < cardinality(part) THEN
      -- A new statement sees what another transaction committed while the one above waited for it.
      -- Rows of this very transaction are the new ones.
      RETURN QUERY
        SELECT tenants[t], r.id,
               CASE WHEN f.body_hash = r.body_hash THEN 'r'::"char" ELSE 'c'::"char" END
        FROM unnest(part) AS r, LATERAL (
          SELECT i.body_hash, i.xmin AS maker FROM idempotency AS i
          WHERE i.tenant = tenants[t] AND i.kind = 'e' AND i.key = r.id OFFSET 0
        ) AS f
        WHERE f.maker <> pg_current_xact_id()::xid;
      fresh := ARRAY(
        SELECT r FROM unnest(part) AS r
        WHERE pg_current_xact_id()::xid = (
          SELECT i.xmin FROM idempotency AS i
          WHERE i.tenant = tenants[t] AND i.kind = 'e' AND i.key = r.id
        )
      );
      part := fresh;
      CONTINUE WHEN part = '{}';
    END IF;
    INSERT INTO event SELECT * FROM unnest(part);
    -- Due at once, also where the clock that stamped the event was ahead.
    INSERT INTO work (tenant, skill, point, decision, due_at, traceparent)
      SELECT tenants[t], d.skill, d.point, r.decision, least(r.received_at, now()), r.traceparent
      FROM unnest(part) AS r, LATERAL (
        SELECT d.skill, d.point FROM decision AS d
        WHERE d.tenant = tenants[t] AND d.id = r.decision OFFSET 0
      ) AS d
      WHERE r.outcomes IS NOT NULL OR r.action_taken IS NOT NULL;
    queued := true;
    IF EXISTS (SELECT FROM decision_point AS p WHERE p.tenant = tenants[t] AND p.per_episode) THEN
      -- Every decision of the episode is credited with what happened to any of them.
      INSERT INTO work (tenant, skill, point, decision, due_at, traceparent)
        SELECT tenants[t], d.skill, d.point, d.id, least(max(r.received_at), now()),
          max(r.traceparent)
        FROM unnest(part) AS r
        LEFT JOIN LATERAL (
          SELECT o.episode FROM decision AS o
          WHERE o.tenant = tenants[t] AND o.id = r.decision OFFSET 0
        ) AS own ON true, LATERAL (
          SELECT e.id, e.skill, e.point FROM decision AS e
          WHERE e.tenant = tenants[t] AND e.episode = coalesce(r.episode, own.episode) OFFSET 0
        ) AS d
        JOIN decision_point AS p
          ON p.tenant = tenants[t] AND p.skill = d.skill AND p.point = d.point AND p.per_episode
        WHERE r.outcomes IS NOT NULL AND d.id IS DISTINCT FROM r.decision
        GROUP BY d.skill, d.point, d.id;
    END IF;
  END LOOP;
  PERFORM set_config('app.tenant', '', true);
  IF queued THEN
    PERFORM pg_notify('steersman_work', '');
  END IF;
END
$$;
