-- a child that stays executes the only run

\set p1 '''default'''
SELECT pg_advisory_unlock(22449, hashtext(:p1::text));

UNLISTEN wakeful_queue_e35e00df;

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

\set status '''succeeded'''
\set reason ''''''
\set queued 'false'
\set due_in 'NULL'
\set keeps_place 'false'
\set waits 'false'
\set given_back '1'
\set fenced '1'
\set journaled 'false'
\set is_tainted 'false'
\set result 'NULL'
\set error ''''''
\set finished 'true'
\set id '''01990000-0000-7000-8000-000000000000''::uuid'
\set epoch '1'
\set claim '''01990000-0000-7000-8000-000000000000''::uuid'
\set goes_on 'false'
\set timeline '''0'''
WITH gone AS (
  UPDATE runs_run SET
    status = :status::text,
    status_reason = :reason::text,
    ready_at = CASE WHEN :queued::boolean AND :due_in::interval IS NULL THEN clock_timestamp() END,
    due_at = CASE WHEN :queued::boolean THEN clock_timestamp() + :due_in::interval END,
    slot = CASE WHEN :keeps_place::boolean THEN slot END,
    attempt = CASE WHEN :waits::boolean THEN 0 ELSE greatest(attempt - :given_back::int, 0) END,
    epoch = epoch + :fenced::int,
    has_journal = has_journal OR :journaled::boolean,
    is_tainted = is_tainted OR :is_tainted::boolean,
    result = :result::jsonb,
    error = :error::text,
    finished_at = CASE WHEN :finished::boolean THEN clock_timestamp() END
  WHERE id = :id::uuid AND epoch = :epoch::int AND claim IS NOT DISTINCT FROM :claim::uuid
    AND NOT (:goes_on::boolean AND cancel_requested_at IS NOT NULL) AND (:timeline::text = '' OR runs_timeline() IN ('', :timeline::text))
  RETURNING id, key, agent, trigger, trigger_id, event_ids, replay_id, attempt, worker_id, pid, claimed_at, parent_id,
    queue, priority, turn
), ledger AS (
  INSERT INTO runs_processedevent (event_id, consumer, replay_id, run_id)
  SELECT unnest(event_ids), trigger, replay_id, id FROM gone WHERE trigger <> ''
), told AS (
  INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
  SELECT 'run.finished', id::text,
         jsonb_build_object('run', id, 'agent', agent, 'trigger', trigger_id, 'status', :status::text, 'error', :error::text),
         0, '', date_bin('500 ms', clock_timestamp(), 'epoch') + interval '500 ms'
  FROM gone
)
SELECT coalesce((SELECT parent_id IS NOT NULL OR false FROM gone), runs_fenced());

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
WITH me AS (
  SELECT id, durable_agents FROM runs_worker worker WHERE id = :worker::uuid AND (worker.kind = 'worker' AND worker.stopped_at IS NULL AND worker.draining_at IS NULL
  AND coalesce(worker.expires_at, worker.seen_at + :lease::interval) > clock_timestamp()) AND NOT EXISTS (SELECT FROM runs_queue WHERE name IN ('*', :queue::text) AND paused_at IS NOT NULL) AND NOT EXISTS (SELECT max_running FROM runs_queue WHERE name = :queue::text AND max_running IS NOT NULL) AND current_setting('transaction_isolation') = 'read committed'
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
  runs_timeline() AS timeline, set_config('wakeful.claimed', concat_ws(' ', runs_run.id, epoch, claim), false) AS named
)
SELECT taken.*, CASE WHEN taken.run_id IS NULL THEN
  CASE WHEN EXISTS (
SELECT id AS run_id, epoch, claim, key, slot, key_limit FROM runs_run
WHERE status = 'running' AND worker_id = :worker::uuid AND pid = :pid::int
) THEN 'unbegun' WHEN EXISTS (SELECT max_running FROM runs_queue WHERE name = :queue::text AND max_running IS NOT NULL) THEN 'limit'
    WHEN EXISTS (SELECT FROM first) OR NOT current_setting('transaction_isolation') = 'read committed' THEN 'locked' ELSE '' END END AS left_out
FROM (SELECT) look LEFT JOIN taken ON true;

SELECT set_config('application_name', 'wakeful:' || id || ':' || epoch, false) FROM runs_run
WHERE id = (string_to_array(current_setting('wakeful.claimed', true), ' '))[1]::uuid AND epoch = (string_to_array(current_setting('wakeful.claimed', true), ' '))[2]::int AND claim = (string_to_array(current_setting('wakeful.claimed', true), ' '))[3]::uuid;

LISTEN wakeful_queue_e35e00df;

\set p1 '''default'''
SELECT pg_try_advisory_lock(22449, hashtext(:p1::text));
