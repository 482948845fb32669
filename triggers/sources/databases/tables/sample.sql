WITH latest AS MATERIALIZED (
  SELECT triggers_row_as_json(wakeful_row, {most_bytes}) AS row
  FROM (SELECT * FROM {table} {order} LIMIT 1000) AS wakeful_row WHERE {condition} LIMIT 1
), made_up AS (
  SELECT jsonb_object_agg(attname, CASE typcategory WHEN 'N' THEN to_jsonb(0) WHEN 'B' THEN to_jsonb(false) WHEN 'S' THEN to_jsonb(''::text) END) AS row
  FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped
), sample AS (
  SELECT row AS new FROM latest UNION ALL SELECT row FROM made_up WHERE NOT EXISTS (SELECT FROM latest)
)
SELECT ({pk})::json AS pk, {key} AS key,
  (CASE WHEN pg_column_size(new) <= {most_bytes} THEN new - {excluded} END)::json AS row FROM sample
