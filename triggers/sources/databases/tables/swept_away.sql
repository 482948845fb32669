WITH gone AS (
  DELETE FROM triggers_sweptrow WHERE (source_id, key) IN (
    SELECT source_id, key FROM triggers_sweptrow WHERE source_id = {source} AND seen_at < {began} LIMIT {piece})
  RETURNING key, primary_key, passes
)
SELECT ARRAY[]::text[] AS at, key, primary_key::json AS primary_key, NULL::json AS new, 'delete' AS operation,
  passes AND NOT EXISTS (
    SELECT FROM (
      SELECT type FROM triggers_event WHERE source_id = {source} AND subject = left({name} || '/' || gone.key, 500) AND subject <> ''
        AND received_at >= {since} ORDER BY seq DESC LIMIT 1) last
    WHERE type LIKE '%.delete') AS is_missed
FROM gone
