-- an end is reported

\set topic '''run.report'''
\set limit '1'
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = :topic::text AND available_at <= (SELECT clock_timestamp()) AND (SELECT pg_try_advisory_xact_lock(22445, hashtext(:topic::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)
  ORDER BY available_at, id LIMIT :limit::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload;

\set p1 '''greeter'''
\set p2 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p3 '''low'''
\set p4 '''text'''
\set p5 ''''''
\set p6 '''text'''
\set p7 '''{}'''
\set p8 'NULL'
INSERT INTO "runs_notification" ("sender", "run_id", "urgency", "text", "topic", "link", "to", "created_at", "planned_at") VALUES (:p1, :p2, :p3, :p4, :p5, :p6, :p7::text[], DEFAULT, :p8) RETURNING "runs_notification"."id", "runs_notification"."topic", "runs_notification"."link", "runs_notification"."to", "runs_notification"."created_at";

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p2 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p3 '''text'''
\set p4 '''text'''
\set p5 '''run.finished'''
\set p6 '''greeter'''
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
