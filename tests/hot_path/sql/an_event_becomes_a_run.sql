-- an event becomes a run

SELECT EXISTS (SELECT FROM triggers_offer WHERE moved_at NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '30 seconds');

\set from '1'
\set but_events '''{}'''
\set limit '1'
SELECT redispatched.are_there AS has_redispatches, event.id AS event_id, coalesce(source.slug, '') AS source, event.type, event.subject, coalesce(event.time, event.received_at) AS time,
       event.received_at, event.target_id, event.root_id, event.depth, event.chain, event.is_tainted,
       greatest(octet_length(event.body), pg_column_size(event.data) * CASE
         WHEN event.body IS NULL AND pg_column_compression(event.data) IS NOT NULL THEN 16 ELSE 1 END, 0) AS bytes,
       (SELECT (SELECT min(event_type) FROM runs_wait WHERE status = 'open' AND kind = 'event') IS NOT NULL) AS may_be_awaited, (SELECT EXISTS (SELECT FROM triggers_backfilltick WHERE outcome = 'open')) AS may_be_backfilled,
       coalesce(source.kind = 'table', false) AS is_change,
       CASE WHEN source.kind = 'table' AND event.cause_run_id IS NOT NULL
         THEN (SELECT run.agent FROM runs_run run WHERE run.id = event.cause_run_id) END AS changed_by,
       CASE WHEN event.target_id IS NOT NULL AND event.type = 'manual.fired' THEN event.headers->>'reports' END AS reports, event.seq
FROM (SELECT EXISTS (SELECT FROM triggers_redispatch WHERE dispatched_at IS NULL) AS are_there) redispatched
LEFT JOIN (
  SELECT * FROM triggers_event WHERE dispatched_at IS NULL AND seq >= :from::bigint AND id <> ALL(:but_events::uuid[])
  ORDER BY seq LIMIT :limit::int) event ON NOT redispatched.are_there
LEFT JOIN triggers_source source ON source.id = event.source_id
ORDER BY event.seq;

SELECT version, changed_by::text, pg_backend_pid() FROM (SELECT) AS always LEFT JOIN triggers_rulesversion ON true;

\set queue '''default'''
\set space '1'
\set lock '1'
\set events '''{01990000-0000-7000-8000-000000000000}'''
\set triggers '''{01990000-0000-7000-8000-000000000000}'''
\set earlier_runs '''{}'''
\set earlier_events '''{}'''
\set earlier_replays '''{}'''
SELECT begun.*, clock_timestamp() AS now, CASE WHEN :queue::text IS NOT NULL THEN (SELECT run.seq FROM runs_run run WHERE run.status = 'queued' AND run.ready_at IS NOT NULL AND run.queue = :queue::text ORDER BY run.agent, run.priority, coalesce(run.turn, run.seq), run.seq LIMIT 1) IS NULL END
FROM triggers_begin_batch(
  :space::int, :lock::int, :events::uuid[], :triggers::uuid[],
  :earlier_runs::uuid[], :earlier_events::uuid[], :earlier_replays::uuid[]) begun;

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p2 '''default'''
\set p3 '''greeter'''
\set p4 '''greeter'''
\set p5 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p6 '''{}'''
\set p7 'NULL'
\set p8 '''{}'''
\set p9 '1'
\set p10 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p11 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p12 '1'
\set p13 '''{}'''
\set p14 'true'
\set p15 'NULL'
\set p16 'NULL'
\set p17 '1'
\set p18 'NULL'
\set p19 'NULL'
\set p20 'NULL'
\set p21 'false'
INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, input, policy, priority, replay_id, root_id, depth,
                      chain, status, status_reason, ready_at, due_at, attempt, epoch, key, key_limit, slot, error, parent_id,
                      forked_from_id, is_tainted, seq, turn)
SELECT :p1::uuid, :p2::text, :p3::text, '', :p4::text, :p5::uuid, :p6::text::uuid[], :p7::text::jsonb, :p8::text::jsonb, :p9::smallint, :p10::uuid,
       :p11::uuid, :p12::smallint, :p13::text::text[], 'queued', '', CASE WHEN :p14::boolean THEN clock_timestamp() END, :p15::timestamptz, 0, 0,
       :p16::text, :p17::smallint, :p18::smallint, '', :p19::uuid, :p20::uuid, :p21::boolean, given.seq, given.seq
FROM (SELECT nextval('runs_run_seq') AS seq OFFSET 0) given
ON CONFLICT (id) DO NOTHING;

\set p1 '''{01990000-0000-7000-8000-000000000000}'''
UPDATE triggers_event SET dispatched_at = clock_timestamp() WHERE id = ANY((SELECT :p1::uuid[])::uuid[]);
