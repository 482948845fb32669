-- a run sleeps for a moment and succeeds

SELECT set_config('default_transaction_read_only', 'on', false);

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT key, position, is_keyed, effect, status, attempts, output, error, error_kind, is_permanent
FROM runs_step WHERE run_id = :p1::uuid;

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT wait.key, wait.position, wait.is_keyed, wait.kind, wait.status, wait.event_type, wait.match_shape, wait.match_hash,
       wait.event_id, wait.children, approval.id, approval.digest
FROM runs_wait wait LEFT JOIN runs_approval approval ON approval.wait_id = wait.id WHERE wait.run_id = :p1::uuid;

\set is_progress 'true'
\set is_tainted 'false'
\set id '''01990000-0000-7000-8000-000000000000''::uuid'
\set epoch '1'
\set claim '''01990000-0000-7000-8000-000000000000''::uuid'
\set timeline '''0'''
\set wait_key '''text'''
\set wait_position '1'
\set wait_keyed 'false'
\set wait_kind '''time'''
\set wait_duration '''1 second''::interval'
\set wait_event_type ''''''
\set wait_match 'NULL'
\set wait_shape '''0'''
\set wait_hash '''text'''
\set wait_event 'NULL'
WITH fenced AS (
  UPDATE runs_run SET attempt = CASE WHEN :is_progress::boolean THEN 0 ELSE attempt END, has_journal = true,
    is_tainted = is_tainted OR :is_tainted::boolean
  WHERE id = :id::uuid AND epoch = :epoch::int AND claim = :claim::uuid AND coalesce(status, '') = 'running'
    AND (:timeline::text = '' OR runs_timeline() IN ('', :timeline::text))
  RETURNING id, agent, worker_id, cancel_requested_at
), answered AS (
  INSERT INTO runs_wait (run_id, key, position, is_keyed, kind, status, due_at, event_type, match, match_shape, match_hash, children,
                         event_id, looked_at, ended_at)
  SELECT run.id, :wait_key::text, :wait_position::int, :wait_keyed::boolean, :wait_kind::text, 'done',
         clock_timestamp() + :wait_duration::interval, :wait_event_type::text, :wait_match::jsonb, :wait_shape::text,
         :wait_hash::text, '{}', :wait_event::uuid, clock_timestamp(), clock_timestamp()
  FROM fenced AS run
)
SELECT coalesce((SELECT cancel_requested_at IS NOT NULL OR EXISTS (
  SELECT FROM runs_worker worker WHERE worker.id = fenced.worker_id AND worker.draining_at IS NOT NULL) OR EXISTS (SELECT FROM runs_agentstop stop WHERE stop.agent IN ('*', fenced.agent))
FROM fenced), runs_fenced());

SET default_transaction_read_only = off;

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
\set claim_epoch '1'
\set number '1'
\set outcome '''succeeded'''
\set traceback ''''''
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
), attempted AS (
  INSERT INTO runs_attemptrow (run_id, epoch, number, worker_id, pid, started_at, ended_at, outcome, error, traceback)
  SELECT id, :claim_epoch::int, coalesce(:number::int, attempt + :given_back::int), worker_id, pid, claimed_at, clock_timestamp(),
         :outcome::text, :error::text, :traceback::text
  FROM gone
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
