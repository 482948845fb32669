-- a queued run is cancelled

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT "runs_run"."id", "runs_run"."seq", "runs_run"."queue", "runs_run"."agent", "runs_run"."version", "runs_run"."begun_version", "runs_run"."trigger", "runs_run"."trigger_id", "runs_run"."event_ids", "runs_run"."input", "runs_run"."policy", "runs_run"."priority", "runs_run"."turn", "runs_run"."parent_id", "runs_run"."forked_from_id", "runs_run"."replay_id", "runs_run"."root_id", "runs_run"."depth", "runs_run"."chain", "runs_run"."is_tainted", "runs_run"."status", "runs_run"."status_reason", "runs_run"."ready_at", "runs_run"."due_at", "runs_run"."claimed_at", "runs_run"."deadline_at", "runs_run"."attempt", "runs_run"."epoch", "runs_run"."claim", "runs_run"."worker_id", "runs_run"."pid", "runs_run"."key", "runs_run"."key_limit", "runs_run"."slot", "runs_run"."cancel_requested_at", "runs_run"."has_journal", "runs_run"."fired", "runs_run"."result", "runs_run"."error", "runs_run"."payload_removed_at", "runs_run"."created_at", "runs_run"."started_at", "runs_run"."finished_at" FROM "runs_run" WHERE "runs_run"."id" = :p1 LIMIT 21;

\set status '''cancelled'''
\set reason '''cancelled by test'''
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
\set claim 'NULL'
\set goes_on 'false'
\set expected '''queued'''
\set slot 'NULL'
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
), told AS (
  INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
  SELECT 'run.finished', id::text,
         jsonb_build_object('run', id, 'agent', agent, 'trigger', trigger_id, 'status', :status::text, 'error', :error::text),
         0, '', date_bin('500 ms', clock_timestamp(), 'epoch') + interval '500 ms'
  FROM gone
), reported AS (
  INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
  SELECT 'child.finished', parent_id::text, jsonb_build_object('parent', parent_id, 'run', id, 'status', :status::text), 0, '',
         clock_timestamp()
  FROM gone WHERE parent_id IS NOT NULL
)
SELECT parent_id IS NOT NULL OR false, agent, trigger FROM gone;

\set p1 '''test'''
\set p2 '''cancel'''
\set p3 '''run'''
\set p4 '''01990000-0000-7000-8000-000000000000'''
\set p5 '''{}''::jsonb'
\set p6 ''''''
INSERT INTO "runs_auditentry" ("at", "by", "action", "kind", "object_id", "detail", "address") VALUES (DEFAULT, :p1, :p2, :p3, :p4, :p5, :p6) RETURNING "runs_auditentry"."id", "runs_auditentry"."at", "runs_auditentry"."address";

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT "runs_run"."id", "runs_run"."seq", "runs_run"."queue", "runs_run"."agent", "runs_run"."version", "runs_run"."begun_version", "runs_run"."trigger", "runs_run"."trigger_id", "runs_run"."event_ids", "runs_run"."input", "runs_run"."policy", "runs_run"."priority", "runs_run"."turn", "runs_run"."parent_id", "runs_run"."forked_from_id", "runs_run"."replay_id", "runs_run"."root_id", "runs_run"."depth", "runs_run"."chain", "runs_run"."is_tainted", "runs_run"."status", "runs_run"."status_reason", "runs_run"."ready_at", "runs_run"."due_at", "runs_run"."claimed_at", "runs_run"."deadline_at", "runs_run"."attempt", "runs_run"."epoch", "runs_run"."claim", "runs_run"."worker_id", "runs_run"."pid", "runs_run"."key", "runs_run"."key_limit", "runs_run"."slot", "runs_run"."cancel_requested_at", "runs_run"."has_journal", "runs_run"."fired", "runs_run"."result", "runs_run"."error", "runs_run"."payload_removed_at", "runs_run"."created_at", "runs_run"."started_at", "runs_run"."finished_at" FROM "runs_run" WHERE "runs_run"."id" = :p1 LIMIT 21;
