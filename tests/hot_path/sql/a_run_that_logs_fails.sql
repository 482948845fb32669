-- a run that logs fails

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT "runs_run"."id", "runs_run"."status", "runs_run"."epoch", "runs_run"."claim" FROM "runs_run" WHERE "runs_run"."id" = :p1 ORDER BY "runs_run"."id" ASC LIMIT 1;

\set status '''failed'''
\set reason '''permanent error'''
\set queued 'false'
\set due_in 'NULL'
\set keeps_place 'false'
\set waits 'false'
\set given_back '1'
\set fenced '1'
\set journaled 'false'
\set is_tainted 'false'
\set result 'NULL'
\set error '''text'''
\set finished 'true'
\set id '''01990000-0000-7000-8000-000000000000''::uuid'
\set epoch '1'
\set claim '''01990000-0000-7000-8000-000000000000''::uuid'
\set goes_on 'false'
\set timeline '''0'''
\set claim_epoch '1'
\set number '1'
\set outcome '''failed'''
\set traceback '''text'''
\set log_epoch '1'
\set log_number '1'
\set log_count '1'
\set log_size '1'
\set log_dropped '1'
\set log_content '''0'''
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
), logged AS (
  INSERT INTO runs_runlog (run_id, epoch, number, count, size, dropped, content)
  SELECT run.id, :log_epoch::int, :log_number::int, :log_count::int, :log_size::int, :log_dropped::int,
         :log_content::jsonb
  FROM gone AS run
  WHERE (SELECT coalesce(sum(kept.count) < 1000 AND sum(kept.size) < 131072, true) FROM runs_runlog kept WHERE kept.run_id = run.id)
  ON CONFLICT (run_id, epoch, number) DO NOTHING
), told AS (
  INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
  SELECT 'run.finished', id::text,
         jsonb_build_object('run', id, 'agent', agent, 'trigger', trigger_id, 'status', :status::text, 'error', :error::text),
         0, '', date_bin('500 ms', clock_timestamp(), 'epoch') + interval '500 ms'
  FROM gone
)
SELECT parent_id IS NOT NULL OR false, agent, trigger FROM gone;
