-- the dispatcher looks for work

\set is_hinted 'false'
\set since '''2026-01-01 00:00:00+00''::timestamptz'
\set owed '''1 second''::interval'
\set topics '''{event}'''
\set lease '''1 second''::interval'
\set others '''1 second''::interval'
\set gone '''1 second''::interval'
\set asks_for_events 'true'
SELECT runs.*, other.* FROM (
SELECT clock_timestamp() AS at,
  :is_hinted::boolean OR EXISTS (SELECT FROM runs_run WHERE status = 'queued' AND ready_at IS NOT NULL) AS ready,
  NOT :is_hinted::boolean AND EXISTS (SELECT FROM runs_run run JOIN runs_worker worker ON worker.id = run.worker_id
          WHERE run.status = 'running' AND worker.stopped_at IS NOT NULL) AS lost,
  (SELECT min(due_at) FROM runs_run WHERE status = 'queued' AND due_at >= (SELECT :since::timestamptz)) - clock_timestamp() AS due,
  (SELECT min(due_at) FROM runs_wait WHERE status = 'open' AND due_at >= (SELECT :since::timestamptz)
   AND (looked_at IS NOT NULL OR kind NOT IN ('event', 'children'))) - clock_timestamp() AS wait,
  (SELECT min(coalesce(look_after, created_at + :owed::interval)) FROM runs_wait
   WHERE status = 'open' AND looked_at IS NULL AND kind IN ('event', 'children')) - clock_timestamp() AS look_back,
  CASE WHEN (SELECT min(available_at) FROM runs_outboxmessage WHERE available_at >= (SELECT :since::timestamptz)) IS NULL THEN '{}'
  ELSE (SELECT coalesce(json_object_agg(topic, due_in), '{}') FROM (
     SELECT topic, extract(epoch FROM (
       SELECT min(available_at) FROM runs_outboxmessage message
       WHERE message.topic = known.topic AND available_at >= (SELECT :since::timestamptz)) - clock_timestamp())::float8 AS due_in
     FROM unnest((SELECT :topics::text[])) AS known(topic)) first WHERE due_in IS NOT NULL) END AS outbox,
  EXISTS (SELECT FROM runs_queue WHERE name IN ('*', '*') AND paused_at IS NOT NULL) AS is_paused,
  NOT :is_hinted::boolean AND EXISTS (SELECT 
FROM runs_wait wait LEFT JOIN agents_session session ON session.name = wait.asked->>'session'
LEFT JOIN runs_run holder ON holder.id = session.run_id AND holder.status IN ('queued', 'running', 'waiting', 'uncertain')
WHERE wait.status = 'open' AND wait.kind = 'session' AND holder.id IS NULL
) AS free_session,
  least((SELECT min(created_at) FROM runs_notification WHERE planned_at IS NULL AND created_at >= (SELECT :since::timestamptz)),
    (SELECT min(due_at) FROM runs_delivery WHERE status IN ('pending', 'held', 'sending') AND due_at >= (SELECT :since::timestamptz)))
    - clock_timestamp() AS notifications,
  (SELECT min(CASE WHEN seen_at > clock_timestamp() + interval '1 second' THEN clock_timestamp()
     ELSE seen_at + (CASE WHEN expires_at IS NULL THEN CASE WHEN kind IN ('worker', 'sources') THEN :lease::interval ELSE :others::interval END
     WHEN expires_at - seen_at > :lease::interval THEN expires_at - seen_at
     ELSE least(:gone::interval, expires_at - seen_at) END) END)
   FROM runs_worker WHERE stopped_at IS NULL) - clock_timestamp() AS lease_expiry
) runs CROSS JOIN (
SELECT (SELECT min(due_at) FROM triggers_window) - clock_timestamp() AS "window", (
SELECT min(CASE WHEN moved_at NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '30 seconds' THEN interval '0' ELSE moved_at - clock_timestamp() END) FROM triggers_offer
) AS offer,
  (
SELECT min(look_at) - clock_timestamp() FROM triggers_replay WHERE status IN ('running', 'cancelling')
) AS replay,
  (SELECT min(due_at) FROM triggers_eventdelivery WHERE status IN ('pending', 'sending')) - clock_timestamp() AS outbound,
  (SELECT min(look_at) - clock_timestamp() FROM triggers_switchtimer) AS absence, (SELECT max(version) FROM triggers_rulesversion) AS version,
  CASE WHEN :asks_for_events::boolean THEN EXISTS (SELECT FROM triggers_event WHERE dispatched_at IS NULL)
    OR EXISTS (SELECT FROM triggers_redispatch WHERE dispatched_at IS NULL) ELSE true END AS has_events
) other;
