-- three events become runs

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

\set queue 'NULL'
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

\set p1 '''{}'''
\set p2 '''{}'''
\set p3 '''{}'''
\set p4 '''{}'''
\set p5 '''{}'''
\set p6 '''{}'''
\set p7 '''{}'''
\set p8 '''{}'''
\set p9 '''{}'''
\set p10 '''{}'''
\set p11 '''{}'''
\set p12 '''{}'''
\set p13 '''{}'''
\set p14 '''{}'''
\set p15 '''{}'''
\set p16 '''{}'''
\set p17 '''{}'''
\set p18 '''{}'''
\set p19 '''{}'''
\set p20 '''{}'''
\set p21 '''{}'''
WITH given AS MATERIALIZED (
  SELECT * FROM unnest((SELECT :p1::uuid[]), (SELECT :p2::text[]), (SELECT :p3::text[]), (SELECT :p4::text[]), (SELECT :p5::uuid[]), (SELECT :p6::text[]), (SELECT :p7::text[]), (SELECT :p8::text[]), (SELECT :p9::smallint[]),
                       (SELECT :p10::uuid[]), (SELECT :p11::uuid[]), (SELECT :p12::smallint[]), (SELECT :p13::text[]), (SELECT :p14::boolean[]), (SELECT :p15::timestamptz[]), (SELECT :p16::text[]), (SELECT :p17::smallint[]),
                       (SELECT :p18::smallint[]), (SELECT :p19::uuid[]), (SELECT :p20::uuid[]), (SELECT :p21::boolean[])) WITH ORDINALITY
    AS new (id, queue, agent, trigger, trigger_id, event_ids, input, policy, priority, replay_id, root_id, depth, chain, is_ready,
            due_at, key, key_limit, slot, parent_id, forked_from_id, is_tainted, position)
), floor AS MATERIALIZED (
  SELECT asked.queue, asked.priority, floor.place
  FROM (SELECT DISTINCT queue, priority FROM given WHERE trigger <> '') asked CROSS JOIN LATERAL (
SELECT coalesce((
  SELECT min(first.place) FROM (
    SELECT DISTINCT agent FROM runs_worker worker, unnest(worker.queues) AS queue, unnest(worker.agents) AS agent
    WHERE worker.kind = 'worker' AND worker.stopped_at IS NULL AND queue = asked.queue) known
  CROSS JOIN LATERAL (
    SELECT coalesce(run.turn, run.seq) AS place FROM runs_run run
    WHERE run.status = 'queued' AND run.ready_at IS NOT NULL AND run.queue = asked.queue AND run.agent = known.agent AND run.priority = asked.priority
      AND coalesce(run.turn, run.seq) >= 0
    ORDER BY run.priority, coalesce(run.turn, run.seq), run.seq LIMIT 1) first), (SELECT last_value + is_called::int FROM runs_run_seq)) AS place
) floor
), last AS MATERIALIZED (
  SELECT queue, priority, trigger, greatest(floor.place, newest.place + 1) AS turn
  FROM (SELECT DISTINCT queue, priority, trigger FROM given WHERE trigger <> '') asked JOIN floor USING (queue, priority)
  CROSS JOIN LATERAL (
    SELECT max(place) FILTER (WHERE (late.queue, late.priority) = (asked.queue, asked.priority)) AS place FROM (
      (SELECT run.queue, run.priority, run.turn AS place FROM runs_run run WHERE run.trigger = asked.trigger
       ORDER BY run.id DESC LIMIT 10)
      UNION ALL
      SELECT asked.queue, asked.priority, (
SELECT coalesce(run.turn, run.seq) FROM runs_run run
WHERE run.status = 'queued' AND run.ready_at IS NOT NULL AND run.key IS NOT NULL AND run.queue = asked.queue AND run.priority = asked.priority
  AND run.trigger = asked.trigger AND coalesce(run.turn, run.seq) >= floor.place AND (run.turn IS NOT NULL OR run.trigger = '')
ORDER BY coalesce(run.turn, run.seq) DESC LIMIT 1
)) late) newest
), new AS (
  SELECT given.*, CASE WHEN NOT is_blocked THEN last.turn - 1 + row_number() OVER (
    PARTITION BY given.queue, given.priority, given.trigger, is_blocked ORDER BY given.position) END AS turn
  FROM given CROSS JOIN LATERAL (SELECT NOT is_ready AND due_at IS NULL AS is_blocked) state
    LEFT JOIN last USING (queue, priority, trigger)
)
INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, input, policy, priority, replay_id, root_id, depth,
                      chain, status, status_reason, ready_at, due_at, attempt, epoch, key, key_limit, slot, error, parent_id,
                      forked_from_id, is_tainted, turn)
SELECT id, queue, agent, '', trigger, trigger_id, event_ids::uuid[], input::jsonb, policy::jsonb, priority, replay_id, root_id, depth,
       chain::text[], 'queued', '', CASE WHEN is_ready THEN clock_timestamp() END, due_at, 0, 0, key, key_limit, slot, '', parent_id,
       forked_from_id, is_tainted, turn
FROM new ORDER BY position
ON CONFLICT (id) DO NOTHING;

\set p1 '''{01990000-0000-7000-8000-000000000000}'''
UPDATE triggers_event SET dispatched_at = clock_timestamp() WHERE id = ANY((SELECT :p1::uuid[])::uuid[]);
