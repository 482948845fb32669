-- an emitted event is recorded

\set topic '''event'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p2 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p3 '''text'''
\set p4 '''text'''
\set p5 '''order.shipped'''
\set p6 ''''''
\set p7 'NULL'
\set p8 '''{}''::jsonb'
\set p9 ''''''
\set p10 'NULL'
\set p11 '''{}''::jsonb'
\set p12 ''''''
\set p13 'NULL'
\set p14 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p15 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p16 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p17 '1'
\set p18 '''{greeter}'''
\set p19 'false'
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, "time", data, data_error, body, headers,
                            body_sha256, target_id, root_id, cause_event_id, cause_run_id, depth, chain, is_tainted)
SELECT * FROM (
  VALUES (:p1::uuid, :p2::uuid, :p3::text, :p4::text, :p5::text, :p6::text, :p7::timestamptz, :p8::jsonb, :p9::text, :p10::bytea, :p11::jsonb,
          :p12::text, :p13::uuid, :p14::uuid, :p15::uuid, :p16::uuid, :p17::smallint, :p18::text[], :p19::boolean)) AS event (id, source_id)
WHERE EXISTS (SELECT FROM triggers_source WHERE id = event.source_id)
ON CONFLICT (source_id, ce_source, ce_id) DO NOTHING
RETURNING id;

\set topic '''run.finished'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set p1 '''{01990000-0000-7000-8000-000000000000}'''
SELECT "triggers_trigger"."id", "triggers_trigger"."slug", "triggers_trigger"."agent", "triggers_trigger"."source", "triggers_trigger"."types", "triggers_trigger"."filter", "triggers_trigger"."input", "triggers_trigger"."key", "triggers_trigger"."key_limit", "triggers_trigger"."overlap", "triggers_trigger"."policy", "triggers_trigger"."tools", "triggers_trigger"."declared", "triggers_trigger"."overrides", "triggers_trigger"."enabled", "triggers_trigger"."paused_at", "triggers_trigger"."paused_reason", "triggers_trigger"."resuming_at", "triggers_trigger"."failures_in_a_row", "triggers_trigger"."created_at" FROM "triggers_trigger" WHERE "triggers_trigger"."id" = ANY(:p1::uuid[]) ORDER BY "triggers_trigger"."id" ASC FOR NO KEY UPDATE SKIP LOCKED;

\set kinds '''{trigger}'''
\set subjects '''{greeter}'''
\set cooldown '''1 second''::interval'
\set most '1'
\set fails 'false'
SELECT DISTINCT current.id FROM unnest((SELECT :kinds::text[]), (SELECT :subjects::text[])) thing (kind, subject)
CROSS JOIN LATERAL (
  SELECT id FROM runs_incident incident
  WHERE incident.kind = thing.kind AND incident.subject = thing.subject AND in_a_row > 0
  UNION ALL (
    SELECT id FROM runs_incident incident
    WHERE incident.kind = thing.kind AND incident.subject = thing.subject
      AND closed_at > (SELECT clock_timestamp()) - :cooldown::interval
    ORDER BY closed_at DESC LIMIT :most::int)
  UNION ALL
  SELECT id FROM runs_incident incident
  WHERE incident.kind = thing.kind AND incident.subject = thing.subject AND muted_at IS NOT NULL AND :fails::bool
  OFFSET 0) current;

\set topic '''run.report'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set topic '''child.finished'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set topic '''wakeup'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set topic '''calendar'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set topic '''schedule'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set topic '''pace'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set topic '''items.looked_at'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set topic '''reply'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;
