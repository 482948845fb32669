-- a lost run is handed on

\set wait '1'
\set run '''01990000-0000-7000-8000-000000000000'''
\set epoch '1'
SELECT pg_terminate_backend(pid, :wait::bigint) FROM pg_stat_activity
WHERE datname = current_database() AND application_name ~ ('^wakeful:' || :run::text || ':[0-9]+$')
  AND split_part(application_name, ':', 3)::int <= :epoch::int;

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT "runs_worker"."id", "runs_worker"."kind", "runs_worker"."host", "runs_worker"."pid", "runs_worker"."version", "runs_worker"."concurrency", "runs_worker"."agents", "runs_worker"."durable_agents", "runs_worker"."queues", "runs_worker"."started_at", "runs_worker"."seen_at", "runs_worker"."expires_at", "runs_worker"."draining_at", "runs_worker"."stopped_at", "runs_worker"."stopped_reason", "runs_worker"."troubles" FROM "runs_worker" WHERE "runs_worker"."id" = :p1 LIMIT 21;

\set status '''queued'''
\set reason '''its worker was lost'''
\set queued 'true'
\set due_in 'NULL'
\set keeps_place 'true'
\set waits 'false'
\set given_back '1'
\set fenced '1'
\set journaled 'false'
\set is_tainted 'false'
\set result 'NULL'
\set error '''its worker was lost'''
\set finished 'false'
\set id '''01990000-0000-7000-8000-000000000000''::uuid'
\set epoch '1'
\set claim '''01990000-0000-7000-8000-000000000000''::uuid'
\set goes_on 'true'
\set expected '''running'''
\set slot 'NULL'
\set claim_epoch '1'
\set number 'NULL'
\set outcome '''lost'''
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
    AND NOT (:goes_on::boolean AND cancel_requested_at IS NOT NULL) AND coalesce(status, '') = :expected::text AND slot IS NOT DISTINCT FROM :slot::smallint
  RETURNING id, key, agent, trigger, trigger_id, event_ids, replay_id, attempt, worker_id, pid, claimed_at, parent_id,
    queue, priority, turn
), attempted AS (
  INSERT INTO runs_attemptrow (run_id, epoch, number, worker_id, pid, started_at, ended_at, outcome, error, traceback)
  SELECT id, :claim_epoch::int, coalesce(:number::int, attempt + :given_back::int), worker_id, pid, claimed_at, clock_timestamp(),
         :outcome::text, :error::text, :traceback::text
  FROM gone
)
SELECT parent_id IS NOT NULL OR false, agent, trigger FROM gone;
