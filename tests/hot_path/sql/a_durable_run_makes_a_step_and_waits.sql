-- a durable run makes a step and waits

SELECT set_config('default_transaction_read_only', 'on', false);

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT key, position, is_keyed, effect, status, attempts, output, error, error_kind, is_permanent
FROM runs_step WHERE run_id = :p1::uuid;

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT wait.key, wait.position, wait.is_keyed, wait.kind, wait.status, wait.event_type, wait.match_shape, wait.match_hash,
       wait.event_id, wait.children, approval.id, approval.digest
FROM runs_wait wait LEFT JOIN runs_approval approval ON approval.wait_id = wait.id WHERE wait.run_id = :p1::uuid;

\set is_progress 'false'
\set is_tainted 'false'
\set id '''01990000-0000-7000-8000-000000000000''::uuid'
\set epoch '1'
\set claim '''01990000-0000-7000-8000-000000000000''::uuid'
\set timeline '''0'''
\set step_keys '''{one}'''
\set step_positions '''{1}'''
\set step_keyed '''{false}'''
\set step_effects '''{at_most_once}'''
\set step_statuses '''{started}'''
\set step_attempts '''{1}'''
\set step_arguments '''{0}'''
\set step_outputs '''{NULL}'''
\set step_errors '''{}'''
\set step_kinds '''{}'''
\set step_permanent '''{false}'''
\set step_took '''{1.0}'''
\set step_kind '''{step}'''
\set step_usages '''{NULL}'''
WITH fenced AS (
  UPDATE runs_run SET attempt = CASE WHEN :is_progress::boolean THEN 0 ELSE attempt END, has_journal = true,
    is_tainted = is_tainted OR :is_tainted::boolean
  WHERE id = :id::uuid AND epoch = :epoch::int AND claim = :claim::uuid AND coalesce(status, '') = 'running'
    AND (:timeline::text = '' OR runs_timeline() IN ('', :timeline::text))
  RETURNING id, agent, worker_id, cancel_requested_at
), journaled AS (
  INSERT INTO runs_step (run_id, key, position, is_keyed, effect, status, epoch, claim, attempts, arguments, output, error,
                         error_kind, is_permanent, kind, usage, started_at, ended_at)
  SELECT run.id, entry.key, entry.position, entry.is_keyed, entry.effect, entry.status, :epoch::int, :claim::uuid, entry.attempts,
         entry.arguments, entry.output, entry.error, entry.error_kind, entry.is_permanent, entry.kind, entry.usage,
         clock_timestamp() - make_interval(secs => entry.took), CASE WHEN entry.status <> 'started' THEN clock_timestamp() END
  FROM fenced AS run, unnest(:step_keys::text[], :step_positions::int[], :step_keyed::boolean[], :step_effects::text[],
    :step_statuses::text[], :step_attempts::int[], :step_arguments::text[]::jsonb[], :step_outputs::text[]::jsonb[],
    :step_errors::text[], :step_kinds::text[], :step_permanent::boolean[], :step_took::float8[],
    :step_kind::text[], :step_usages::text[]::jsonb[])
    AS entry(key, position, is_keyed, effect, status, attempts, arguments, output, error, error_kind, is_permanent, took, kind, usage)
  ON CONFLICT (run_id, key) DO UPDATE SET
    position = excluded.position, effect = excluded.effect, status = excluded.status, epoch = excluded.epoch, claim = excluded.claim,
    attempts = excluded.attempts, arguments = coalesce(excluded.arguments, runs_step.arguments), output = excluded.output,
    error = excluded.error, error_kind = excluded.error_kind, is_permanent = excluded.is_permanent, usage = excluded.usage,
    ended_at = excluded.ended_at
)
SELECT coalesce((SELECT false WHERE NOT (SELECT cancel_requested_at IS NOT NULL OR EXISTS (
  SELECT FROM runs_worker worker WHERE worker.id = fenced.worker_id AND worker.draining_at IS NOT NULL) OR EXISTS (SELECT FROM runs_agentstop stop WHERE stop.agent IN ('*', fenced.agent))
FROM fenced)), runs_fenced());

\set is_progress 'true'
\set is_tainted 'false'
\set id '''01990000-0000-7000-8000-000000000000''::uuid'
\set epoch '1'
\set claim '''01990000-0000-7000-8000-000000000000''::uuid'
\set timeline '''0'''
\set step_keys '''{one}'''
\set step_positions '''{1}'''
\set step_keyed '''{false}'''
\set step_effects '''{at_most_once}'''
\set step_statuses '''{done}'''
\set step_attempts '''{1}'''
\set step_arguments '''{0}'''
\set step_outputs '''{0}'''
\set step_errors '''{}'''
\set step_kinds '''{}'''
\set step_permanent '''{false}'''
\set step_took '''{1.0}'''
\set step_kind '''{step}'''
\set step_usages '''{NULL}'''
WITH fenced AS (
  UPDATE runs_run SET attempt = CASE WHEN :is_progress::boolean THEN 0 ELSE attempt END, has_journal = true,
    is_tainted = is_tainted OR :is_tainted::boolean
  WHERE id = :id::uuid AND epoch = :epoch::int AND claim = :claim::uuid AND coalesce(status, '') = 'running'
    AND (:timeline::text = '' OR runs_timeline() IN ('', :timeline::text))
  RETURNING id, agent, worker_id, cancel_requested_at
), journaled AS (
  INSERT INTO runs_step (run_id, key, position, is_keyed, effect, status, epoch, claim, attempts, arguments, output, error,
                         error_kind, is_permanent, kind, usage, started_at, ended_at)
  SELECT run.id, entry.key, entry.position, entry.is_keyed, entry.effect, entry.status, :epoch::int, :claim::uuid, entry.attempts,
         entry.arguments, entry.output, entry.error, entry.error_kind, entry.is_permanent, entry.kind, entry.usage,
         clock_timestamp() - make_interval(secs => entry.took), CASE WHEN entry.status <> 'started' THEN clock_timestamp() END
  FROM fenced AS run, unnest(:step_keys::text[], :step_positions::int[], :step_keyed::boolean[], :step_effects::text[],
    :step_statuses::text[], :step_attempts::int[], :step_arguments::text[]::jsonb[], :step_outputs::text[]::jsonb[],
    :step_errors::text[], :step_kinds::text[], :step_permanent::boolean[], :step_took::float8[],
    :step_kind::text[], :step_usages::text[]::jsonb[])
    AS entry(key, position, is_keyed, effect, status, attempts, arguments, output, error, error_kind, is_permanent, took, kind, usage)
  ON CONFLICT (run_id, key) DO UPDATE SET
    position = excluded.position, effect = excluded.effect, status = excluded.status, epoch = excluded.epoch, claim = excluded.claim,
    attempts = excluded.attempts, arguments = coalesce(excluded.arguments, runs_step.arguments), output = excluded.output,
    error = excluded.error, error_kind = excluded.error_kind, is_permanent = excluded.is_permanent, usage = excluded.usage,
    ended_at = excluded.ended_at
)
SELECT coalesce((SELECT cancel_requested_at IS NOT NULL OR EXISTS (
  SELECT FROM runs_worker worker WHERE worker.id = fenced.worker_id AND worker.draining_at IS NOT NULL) OR EXISTS (SELECT FROM runs_agentstop stop WHERE stop.agent IN ('*', fenced.agent))
FROM fenced), runs_fenced());

SET default_transaction_read_only = off;

\set status '''waiting'''
\set reason '''text'''
\set queued 'false'
\set due_in 'NULL'
\set keeps_place 'false'
\set waits 'true'
\set given_back '1'
\set fenced '1'
\set journaled 'true'
\set is_tainted 'false'
\set result 'NULL'
\set error ''''''
\set finished 'false'
\set id '''01990000-0000-7000-8000-000000000000''::uuid'
\set epoch '1'
\set claim '''01990000-0000-7000-8000-000000000000''::uuid'
\set goes_on 'true'
\set timeline '''0'''
\set claim_epoch '1'
\set number '1'
\set outcome '''waiting'''
\set traceback ''''''
\set wait_key '''text'''
\set wait_position '1'
\set wait_keyed 'false'
\set wait_kind '''time'''
\set wait_until 'NULL'
\set wait_duration '''1 second''::interval'
\set wait_event_type ''''''
\set wait_match 'NULL'
\set wait_shape '''0'''
\set wait_hash '''text'''
\set wait_children '''{}'''
\set wait_asked 'NULL'
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
), waited AS (
  INSERT INTO runs_wait (run_id, key, position, is_keyed, kind, status, due_at, event_type, match, match_shape, match_hash, children, asked)
  SELECT run.id, :wait_key::text, :wait_position::int, :wait_keyed::boolean, :wait_kind::text, 'open',
         coalesce(:wait_until::timestamptz, clock_timestamp() + :wait_duration::interval),
         :wait_event_type::text, :wait_match::jsonb, :wait_shape::text, :wait_hash::text, :wait_children::uuid[],
         :wait_asked::jsonb
  FROM gone AS run
  ON CONFLICT (run_id, key) DO UPDATE SET
    status = 'open', ended_at = NULL, looked_at = NULL, look_after = NULL, looked_to = NULL, look_failures = 0
  WHERE runs_wait.status = 'closed'
  RETURNING id
)
SELECT coalesce((SELECT parent_id IS NOT NULL OR false FROM gone), runs_fenced());
