-- a wait ends by time

\set spacing '''1 second''::interval'
WITH locked AS MATERIALIZED (
  SELECT run.id AS run_id, wait.id AS wait_id, NULL::uuid AS event_id
  FROM runs_wait wait JOIN runs_run run ON run.id = wait.run_id
  WHERE wait.status = 'open' AND run.status = 'waiting' AND wait.id = ANY(ARRAY(
SELECT id FROM runs_wait WHERE status = 'open' AND due_at <= (SELECT clock_timestamp())
  AND (looked_at IS NOT NULL OR kind NOT IN ('event', 'children'))
ORDER BY due_at LIMIT 100
))
  FOR NO KEY UPDATE OF run SKIP LOCKED
), ended AS (
  UPDATE runs_wait SET status = CASE WHEN runs_wait.kind IN ('time', 'budget') THEN 'done' ELSE 'expired' END, ended_at = clock_timestamp(), event_id = locked.event_id
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
SELECT (SELECT count(*) FROM queued), ARRAY(SELECT queue FROM queued WHERE ready_at IS NOT NULL), NULL;
