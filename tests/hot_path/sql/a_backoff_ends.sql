-- a backoff ends

\set p1 '1'
UPDATE runs_run SET ready_at = clock_timestamp(), due_at = NULL
WHERE id = ANY(ARRAY(
  SELECT id FROM runs_run
  WHERE status = 'queued' AND due_at <= (SELECT clock_timestamp()) AND (key IS NULL OR slot IS NOT NULL)
  ORDER BY due_at LIMIT :p1::int FOR UPDATE SKIP LOCKED));

\set p1 '1'
SELECT id, key FROM runs_run
WHERE status = 'queued' AND due_at <= (SELECT clock_timestamp()) AND coalesce(key, '') <> '' AND slot IS NULL
ORDER BY due_at LIMIT :p1::int;
