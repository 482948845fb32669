-- a run is claimed

\set worker '''01990000-0000-7000-8000-000000000000''::uuid'
\set lease '''1 second''::interval'
\set queue '''default'''
\set sought '''{}'''
\set priorities '''{}'''
\set turns '''{}'''
\set seqs '''{}'''
\set pid '1'
\set timeout '1.0'
\set hard '1.0'
\set versions '''{}'''
\set agents '''{}'''
\set lazy 'false'
WITH me AS (
  SELECT id, durable_agents FROM runs_worker worker WHERE id = :worker::uuid AND (worker.kind = 'worker' AND worker.stopped_at IS NULL AND worker.draining_at IS NULL
  AND coalesce(worker.expires_at, worker.seen_at + :lease::interval) > clock_timestamp()) AND NOT EXISTS (SELECT FROM runs_queue WHERE name IN ('*', :queue::text) AND paused_at IS NOT NULL) AND NOT EXISTS (SELECT max_running FROM runs_queue WHERE name = :queue::text AND max_running IS NOT NULL)
), first AS MATERIALIZED (
  SELECT first.id, first.agent, first.at FROM me CROSS JOIN unnest((SELECT :sought::text[]), (SELECT :priorities::int[]), (SELECT :turns::bigint[]),
    (SELECT :seqs::bigint[])) AS sought(agent, priority, turn, seq)
  CROSS JOIN LATERAL (
    SELECT run.id, run.agent, ARRAY[run.priority, coalesce(run.turn, run.seq), run.seq] AS at FROM runs_run run
  WHERE run.status = 'queued' AND run.ready_at IS NOT NULL AND run.queue = :queue::text AND run.agent = sought.agent
    AND (run.priority, coalesce(run.turn, run.seq), run.seq) >= (sought.priority, sought.turn, sought.seq) AND (NOT run.has_journal OR run.agent = ANY(me.durable_agents) OR NOT EXISTS (
    SELECT FROM runs_worker worker
    WHERE worker.id <> me.id AND (worker.kind = 'worker' AND worker.stopped_at IS NULL AND worker.draining_at IS NULL
  AND coalesce(worker.expires_at, worker.seen_at + :lease::interval) > clock_timestamp()) AND run.queue = ANY(worker.queues) AND run.agent = ANY(worker.durable_agents))) ORDER BY run.priority, coalesce(run.turn, run.seq), run.seq LIMIT 8) first
  WHERE NOT ARRAY(SELECT agent FROM runs_agentstop) && ARRAY['*', sought.agent]
), best AS MATERIALIZED (
  SELECT run.id FROM (
    SELECT id FROM first
    WHERE at <= ALL (SELECT max(at) FROM first GROUP BY agent HAVING count(*) = 8)
    ORDER BY at) candidate
  CROSS JOIN LATERAL (
    SELECT id, status, ready_at FROM runs_run WHERE id = candidate.id OFFSET 0 FOR UPDATE SKIP LOCKED) run
  WHERE run.status = 'queued' AND run.ready_at IS NOT NULL LIMIT 1
)
, taken AS (
UPDATE runs_run SET
  status = 'running', status_reason = '', ready_at = NULL, worker_id = :worker::uuid, pid = :pid::int,
  claimed_at = clock_timestamp(), started_at = coalesce(started_at, clock_timestamp()),
  deadline_at = clock_timestamp() + make_interval(secs => coalesce(CASE jsonb_typeof(policy->'timeout') WHEN 'number' THEN
      least(greatest((policy->>'timeout')::numeric, 0), 1e9)::float8 END, :timeout::float8) + :hard::float8),
  attempt = attempt + 1, epoch = epoch + 1, claim = gen_random_uuid(),
  version = CASE WHEN started_at IS NOT NULL AND starts_with(begun_version, 'prompt:') THEN begun_version
    ELSE (:versions::text[])[array_position(:agents::text[], agent)] END,
  begun_version = CASE WHEN started_at IS NULL THEN (:versions::text[])[array_position(:agents::text[], agent)] ELSE begun_version END
FROM best WHERE runs_run.id = best.id
RETURNING runs_run.id AS run_id, epoch, attempt, agent, trigger, trigger_id, event_ids, input, policy, root_id, depth, chain, key,
  slot, key_limit, parent_id, replay_id, claim AS id, has_journal, is_tainted, fired, begun_version,
  runs_timeline() AS timeline, concat(set_config('application_name', 'wakeful:' || runs_run.id || ':' || epoch, false), CASE WHEN :lazy::boolean AND attempt = 1 THEN set_config('synchronous_commit', 'off', true) END) AS named
)
SELECT taken.*, CASE WHEN taken.run_id IS NULL THEN
  CASE WHEN EXISTS (
SELECT id AS run_id, epoch, claim, key, slot, key_limit FROM runs_run
WHERE status = 'running' AND worker_id = :worker::uuid AND pid = :pid::int
) THEN 'unbegun' WHEN EXISTS (SELECT max_running FROM runs_queue WHERE name = :queue::text AND max_running IS NOT NULL) THEN 'limit'
    WHEN EXISTS (SELECT FROM first) OR NOT current_setting('transaction_isolation') = 'read committed' THEN 'locked' ELSE '' END END AS left_out
FROM (SELECT) look LEFT JOIN taken ON true;
