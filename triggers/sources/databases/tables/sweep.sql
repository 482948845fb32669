WITH piece AS MATERIALIZED (
  SELECT triggers_row_as_json(wakeful_row, {most_bytes}) AS new, {condition} AS passes, ARRAY[{key_texts}]::text[] AS at,
    row_number() OVER (ORDER BY {key_columns}) AS place
  FROM {table} AS wakeful_row WHERE {after} ORDER BY {key_columns} LIMIT {piece}
), seen AS MATERIALIZED (
  SELECT place, at, passes, new, {pk} AS primary_key, {key} AS key, md5({digested}::text)::uuid AS digest FROM piece
), kept AS (
  INSERT INTO triggers_sweptrow (source_id, key, primary_key, digest, passes, seen_at)
  SELECT {source}, key, primary_key, digest, coalesce(passes, false), {began} FROM seen
  ON CONFLICT (source_id, key) DO UPDATE SET digest = excluded.digest, passes = excluded.passes, seen_at = excluded.seen_at
)
SELECT at, key, primary_key::json AS primary_key, operation, is_missed,
  CASE WHEN is_missed AND pg_column_size(new) <= {most_bytes} THEN (new - {excluded})::json END AS new
FROM (
SELECT place, seen.at, seen.key, seen.primary_key, new,
  CASE WHEN before.key IS NULL THEN 'insert' ELSE 'update' END AS operation,
  coalesce(seen.passes, false) AND before.digest IS DISTINCT FROM seen.digest AND NOT EXISTS (
    SELECT FROM (
      SELECT data FROM triggers_event WHERE source_id = {source} AND subject = left({name} || '/' || seen.key, 500) AND subject <> ''
        AND received_at >= {since} ORDER BY seq DESC LIMIT 1) last
    WHERE data IS NULL OR data ? 'too_large' OR {last_digested} = {digested}) AS is_missed
FROM seen LEFT JOIN triggers_sweptrow before ON before.source_id = {source} AND before.key = seen.key
) compared
ORDER BY place
