-- a run waits for its third event

SELECT set_config('default_transaction_read_only', 'on', false);

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT key, position, is_keyed, effect, status, attempts, output, error, error_kind, is_permanent
FROM runs_step WHERE run_id = :p1::uuid;

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT wait.key, wait.position, wait.is_keyed, wait.kind, wait.status, wait.event_type, wait.match_shape, wait.match_hash,
       wait.event_id, wait.children, approval.id, approval.digest
FROM runs_wait wait LEFT JOIN runs_approval approval ON approval.wait_id = wait.id WHERE wait.run_id = :p1::uuid;

\set p1 '''{01990000-0000-7000-8000-000000000000}'''
\set p2 '''01990000-0000-7000-8000-000000000000''::uuid'
SELECT event.id, event.type, coalesce(source.slug, '') AS source, event.subject, coalesce(event.time, event.received_at) AS time,
       event.data, event.is_tainted, coalesce(NOT (source.trusted OR source.kind IN ('api', 'cli', 'schedule', 'run', 'manual')), true) AS from_strangers
FROM triggers_event event LEFT JOIN triggers_source source ON source.id = event.source_id
WHERE event.id = ANY((SELECT :p1::uuid[])::uuid[]) AND (event.id = (SELECT :p2::uuid) OR pg_column_size(event.data) <= 8192) ORDER BY event.seq;

\set searched_to 'NULL'
\set after '''01990000-0000-7000-8000-000000000000''::uuid'
\set root '''01990000-0000-7000-8000-000000000000''::uuid'
\set type '''order.paid'''
\set most '1'
\set end '1'
\set match 'NULL'
\set since '''2026-01-01 00:00:00+00''::timestamptz'
\set but '''{01990000-0000-7000-8000-000000000000}'''
\set source ''''''
WITH first AS MATERIALIZED (
  SELECT coalesce(:searched_to::bigint, (SELECT seq FROM triggers_event WHERE id = :after::uuid),
                  (SELECT seq FROM triggers_event WHERE id = :root::uuid), 0) AS seq
), page AS MATERIALIZED (
  SELECT least(
    (SELECT seq FROM triggers_event
     WHERE type = (SELECT :type::text) AND dispatched_at IS NOT NULL AND seq > (SELECT seq FROM first)
     ORDER BY seq OFFSET (SELECT :most::int - 1) LIMIT 1),
    (SELECT seq FROM triggers_event WHERE dispatched_at IS NULL AND seq > (SELECT seq FROM first)
     ORDER BY seq OFFSET (SELECT :most::int - 1) LIMIT 1)) AS last
)
SELECT (
  SELECT event.id FROM (
    (SELECT id, seq FROM triggers_event
     WHERE type = (SELECT :type::text) AND dispatched_at IS NOT NULL
       AND seq > (SELECT seq FROM first) AND seq <= coalesce((SELECT last FROM page), :end::bigint)
       AND payload_removed_at IS NULL AND (:match::jsonb IS NULL OR data @> :match::jsonb)
       AND (:after::uuid IS NOT NULL OR received_at >= :since::timestamptz) AND id <> ALL (:but::uuid[])
       AND (:source::text = '' OR source_id = (SELECT id FROM triggers_source WHERE slug = :source::text)) ORDER BY seq LIMIT 1)
    UNION ALL
    (SELECT id, seq FROM triggers_event
     WHERE dispatched_at IS NULL AND type = (SELECT :type::text)
       AND seq > (SELECT seq FROM first) AND seq <= coalesce((SELECT last FROM page), :end::bigint)
       AND payload_removed_at IS NULL AND (:match::jsonb IS NULL OR data @> :match::jsonb)
       AND (:after::uuid IS NOT NULL OR received_at >= :since::timestamptz) AND id <> ALL (:but::uuid[])
       AND (:source::text = '' OR source_id = (SELECT id FROM triggers_source WHERE slug = :source::text)) ORDER BY seq LIMIT 1)
  ) event ORDER BY event.seq LIMIT 1
), (SELECT last FROM page);

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
\set wait_kind '''event'''
\set wait_until 'NULL'
\set wait_duration '''1 second''::interval'
\set wait_event_type '''order.paid'''
\set wait_match '''{}''::jsonb'
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

\set searched_to 'NULL'
\set after '''01990000-0000-7000-8000-000000000000''::uuid'
\set root '''01990000-0000-7000-8000-000000000000''::uuid'
\set type '''order.paid'''
\set most '1'
\set end '1'
\set match 'NULL'
\set since '''2026-01-01 00:00:00+00''::timestamptz'
\set but '''{01990000-0000-7000-8000-000000000000}'''
\set source ''''''
\set run '''01990000-0000-7000-8000-000000000000''::uuid'
\set key '''text'''
WITH found(event_id, searched_to) AS MATERIALIZED (WITH first AS MATERIALIZED (
  SELECT coalesce(:searched_to::bigint, (SELECT seq FROM triggers_event WHERE id = :after::uuid),
                  (SELECT seq FROM triggers_event WHERE id = :root::uuid), 0) AS seq
), page AS MATERIALIZED (
  SELECT least(
    (SELECT seq FROM triggers_event
     WHERE type = (SELECT :type::text) AND dispatched_at IS NOT NULL AND seq > (SELECT seq FROM first)
     ORDER BY seq OFFSET (SELECT :most::int - 1) LIMIT 1),
    (SELECT seq FROM triggers_event WHERE dispatched_at IS NULL AND seq > (SELECT seq FROM first)
     ORDER BY seq OFFSET (SELECT :most::int - 1) LIMIT 1)) AS last
)
SELECT (
  SELECT event.id FROM (
    (SELECT id, seq FROM triggers_event
     WHERE type = (SELECT :type::text) AND dispatched_at IS NOT NULL
       AND seq > (SELECT seq FROM first) AND seq <= coalesce((SELECT last FROM page), :end::bigint)
       AND payload_removed_at IS NULL AND (:match::jsonb IS NULL OR data @> :match::jsonb)
       AND (:after::uuid IS NOT NULL OR received_at >= :since::timestamptz) AND id <> ALL (:but::uuid[])
       AND (:source::text = '' OR source_id = (SELECT id FROM triggers_source WHERE slug = :source::text)) ORDER BY seq LIMIT 1)
    UNION ALL
    (SELECT id, seq FROM triggers_event
     WHERE dispatched_at IS NULL AND type = (SELECT :type::text)
       AND seq > (SELECT seq FROM first) AND seq <= coalesce((SELECT last FROM page), :end::bigint)
       AND payload_removed_at IS NULL AND (:match::jsonb IS NULL OR data @> :match::jsonb)
       AND (:after::uuid IS NOT NULL OR received_at >= :since::timestamptz) AND id <> ALL (:but::uuid[])
       AND (:source::text = '' OR source_id = (SELECT id FROM triggers_source WHERE slug = :source::text)) ORDER BY seq LIMIT 1)
  ) event ORDER BY event.seq LIMIT 1
), (SELECT last FROM page))
UPDATE runs_wait SET looked_at = clock_timestamp(), look_failures = 0
WHERE id = (SELECT id FROM runs_wait WHERE run_id = :run::uuid AND key = :key::text AND status = 'open'
            FOR NO KEY UPDATE SKIP LOCKED)
  AND EXISTS (SELECT FROM found WHERE event_id IS NULL AND searched_to IS NULL)
RETURNING set_config('synchronous_commit', 'off', true);
