-- a run that logs succeeds

\set p1 '''text'''
SELECT pg_advisory_xact_lock(hashtextextended(:p1::text, 0));

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
), ledger AS (
  INSERT INTO runs_processedevent (event_id, consumer, replay_id, run_id)
  SELECT unnest(event_ids), trigger, replay_id, id FROM gone WHERE trigger <> ''
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
), promoted AS (
  UPDATE runs_run SET ready_at = clock_timestamp(), slot = placed.slot, turn = coalesce(runs_run.turn, placed.turn)
  FROM (
  WITH placed AS MATERIALIZED (
    SELECT next.slot, run.id, run.queue, run.priority, run.trigger, run.seq, coalesce((SELECT turn FROM gone WHERE (gone.queue, gone.priority) = (run.queue, run.priority)), 0) AS since
    FROM (
  SELECT blocked.id, (
    SELECT min(place) FROM generate_series(1, blocked.key_limit) AS place WHERE place <> ALL (held.slots))::smallint AS slot
  FROM (SELECT key, id FROM gone) AS freed
  CROSS JOIN LATERAL (
    SELECT id, key_limit, seq FROM runs_run WHERE key = freed.key AND status = 'queued' AND slot IS NULL AND due_at IS NULL AND ready_at IS NULL AND id IS DISTINCT FROM freed.id
    ORDER BY seq LIMIT 1) blocked
  CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(slot), '{}') AS slots FROM runs_run
    WHERE key = freed.key AND slot IS NOT NULL AND id IS DISTINCT FROM freed.id) held
  WHERE cardinality(held.slots) < blocked.key_limit
    AND (blocked.key_limit > 1 OR NOT EXISTS (
      SELECT FROM runs_run WHERE key = freed.key AND status = 'queued' AND slot IS NULL AND due_at IS NOT NULL AND seq < blocked.seq AND id IS DISTINCT FROM freed.id))
) next JOIN runs_run run ON run.id = next.id
  ), floor AS MATERIALIZED (
    SELECT asked.queue, asked.priority, floor.place
    FROM (SELECT queue, priority, min(since) AS since FROM placed GROUP BY queue, priority) asked CROSS JOIN LATERAL (
SELECT coalesce((
  SELECT min(first.place) FROM (
    SELECT DISTINCT agent FROM runs_worker worker, unnest(worker.queues) AS queue, unnest(worker.agents) AS agent
    WHERE worker.kind = 'worker' AND worker.stopped_at IS NULL AND queue = asked.queue) known
  CROSS JOIN LATERAL (
    SELECT coalesce(run.turn, run.seq) AS place FROM runs_run run
    WHERE run.status = 'queued' AND run.ready_at IS NOT NULL AND run.queue = asked.queue AND run.agent = known.agent AND run.priority = asked.priority
      AND coalesce(run.turn, run.seq) >= asked.since
    ORDER BY run.priority, coalesce(run.turn, run.seq), run.seq LIMIT 1) first), (SELECT last_value + is_called::int FROM runs_run_seq)) AS place
) floor
  ), last AS MATERIALIZED (
    SELECT queue, priority, trigger, floor.place AS floor, (
SELECT coalesce(run.turn, run.seq) FROM runs_run run
WHERE run.status = 'queued' AND run.ready_at IS NOT NULL AND run.key IS NOT NULL AND run.queue = asked.queue AND run.priority = asked.priority
  AND run.trigger = asked.trigger AND coalesce(run.turn, run.seq) >= floor.place AND (run.turn IS NOT NULL OR run.trigger = '')
ORDER BY coalesce(run.turn, run.seq) DESC LIMIT 1
) AS turn
    FROM (SELECT DISTINCT queue, priority, trigger FROM placed) asked JOIN floor USING (queue, priority)
  )
  SELECT placed.id, placed.slot, greatest(last.floor, last.turn + 1, placed.since + 1) - 1 + row_number() OVER (
    PARTITION BY queue, priority, trigger ORDER BY placed.seq) AS turn
  FROM placed JOIN last USING (queue, priority, trigger)
) placed
  WHERE runs_run.id = placed.id
  RETURNING runs_run.id
)
SELECT coalesce((SELECT parent_id IS NOT NULL OR EXISTS (SELECT FROM promoted) FROM gone), runs_fenced());
