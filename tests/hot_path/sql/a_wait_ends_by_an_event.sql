-- a wait ends by an event

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

\set p1 '''{order.paid}'''
SELECT wanted.type, shape.match_shape FROM unnest((SELECT :p1::text[])) AS wanted(type) CROSS JOIN LATERAL (
  WITH RECURSIVE walk AS (
    (SELECT match_shape FROM runs_wait
     WHERE status = 'open' AND kind = 'event' AND event_type = wanted.type ORDER BY match_shape LIMIT 1)
    UNION ALL
    SELECT (SELECT match_shape FROM runs_wait
            WHERE status = 'open' AND kind = 'event' AND event_type = wanted.type AND match_shape > walk.match_shape
            ORDER BY match_shape LIMIT 1)
    FROM walk WHERE walk.match_shape IS NOT NULL
  ) SELECT match_shape FROM walk WHERE match_shape IS NOT NULL) shape;

\set p1 '''{01990000-0000-7000-8000-000000000000}'''
SELECT id, data FROM triggers_event WHERE id = ANY((SELECT :p1::uuid[])::uuid[]);

\set p1 '''{01990000-0000-7000-8000-000000000000}'''
\set p2 '''{order.paid}'''
\set p3 '''{0}'''
\set p4 '''{text}'''
SELECT found.id, hit.event_id
FROM unnest((SELECT :p1::uuid[]), (SELECT :p2::text[]), (SELECT :p3::text[]), (SELECT :p4::text[])) AS hit(event_id, type, shape, hash)
CROSS JOIN LATERAL (
  SELECT wait.id FROM runs_wait wait
  WHERE wait.status = 'open' AND wait.kind = 'event' AND wait.event_type = hit.type AND wait.match_shape = hit.shape
    AND wait.match_hash = hit.hash
    AND NOT EXISTS (
      SELECT FROM runs_wait taken
      WHERE taken.run_id = wait.run_id AND taken.event_id IS NOT DISTINCT FROM hit.event_id OFFSET 0)
  LIMIT 1001) found
LIMIT 1001;

\set queue 'NULL'
\set space '1'
\set lock '1'
\set events '''{01990000-0000-7000-8000-000000000000}'''
\set triggers '''{}'''
\set earlier_runs '''{}'''
\set earlier_events '''{}'''
\set earlier_replays '''{}'''
SELECT begun.*, clock_timestamp() AS now, CASE WHEN :queue::text IS NOT NULL THEN (SELECT run.seq FROM runs_run run WHERE run.status = 'queued' AND run.ready_at IS NOT NULL AND run.queue = :queue::text ORDER BY run.agent, run.priority, coalesce(run.turn, run.seq), run.seq LIMIT 1) IS NULL END
FROM triggers_begin_batch(
  :space::int, :lock::int, :events::uuid[], :triggers::uuid[],
  :earlier_runs::uuid[], :earlier_events::uuid[], :earlier_replays::uuid[]) begun;

\set ids '''{1}'''
\set events '''{01990000-0000-7000-8000-000000000000}'''
\set spacing '''1 second''::interval'
WITH locked AS MATERIALIZED (
  SELECT run.id AS run_id, wait.id AS wait_id, hit.event_id AS event_id
  FROM unnest((SELECT :ids::bigint[]), (SELECT :events::uuid[])) AS hit(wait_id, event_id)
    JOIN runs_wait wait ON wait.id = hit.wait_id JOIN runs_run run ON run.id = wait.run_id
  WHERE wait.status = 'open' AND run.status = 'waiting' 
  FOR NO KEY UPDATE OF run SKIP LOCKED
), ended AS (
  UPDATE runs_wait SET status = 'done', ended_at = clock_timestamp(), event_id = locked.event_id
  FROM locked WHERE runs_wait.id = locked.wait_id AND runs_wait.status = 'open'
  RETURNING runs_wait.id, runs_wait.run_id,
    runs_wait.kind = 'time' AND runs_wait.due_at - runs_wait.created_at >= :spacing::interval AS is_new
), queued AS (
  UPDATE runs_run SET
    status = 'queued', status_reason = '',
    ready_at = CASE WHEN key IS NULL OR slot IS NOT NULL THEN clock_timestamp() END,
    due_at = CASE WHEN key IS NOT NULL AND slot IS NULL THEN clock_timestamp() END,
    depth = CASE WHEN ended.is_new THEN 0 ELSE depth END,
    chain = CASE WHEN ended.is_new THEN '{}' ELSE chain END
  FROM ended WHERE runs_run.id = ended.run_id AND runs_run.status = 'waiting'
  RETURNING queue, ready_at
)
SELECT (SELECT count(*) FROM queued), ARRAY(SELECT queue FROM queued WHERE ready_at IS NOT NULL), set_config('synchronous_commit', 'off', true), 
ARRAY(
  SELECT wait.id FROM runs_wait wait JOIN runs_run run ON run.id = wait.run_id
  WHERE (SELECT count(*) FROM locked) < cardinality((SELECT :ids::bigint[]))
    AND wait.id = ANY((SELECT :ids::bigint[])::bigint[]) AND wait.status = 'open' AND run.status = 'waiting'
    AND wait.id <> ALL (ARRAY(SELECT wait_id FROM locked)));

\set p1 '''{01990000-0000-7000-8000-000000000000}'''
UPDATE triggers_event SET dispatched_at = clock_timestamp() WHERE id = ANY((SELECT :p1::uuid[])::uuid[]);
