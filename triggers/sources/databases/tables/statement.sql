INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256,
  root_id, cause_event_id, cause_run_id, depth, chain, is_tainted)
SELECT id, {source}, {origin}, id::text, {type}, left({name}, 500),
  pg_catalog.jsonb_build_object('table', {name}, 'operation', {operation}, 'rows', rows, 'pks', pks, 'cut', rows - jsonb_array_length(pks)),
  '', '{"first-of-statement": "true"}', '', coalesce(cause_root_id, id), cause_event_id, cause_run_id, coalesce(cause_depth, 0),
  coalesce(cause_chain, '{}'), coalesce(cause_is_tainted, false)
FROM (
  SELECT triggers_uuid7() AS id, count(*) AS rows,
    coalesce(pg_catalog.jsonb_agg(pk ORDER BY place) FILTER (WHERE place <= {most_keys} AND size <= {most_bytes}), '[]') AS pks
  FROM (
    SELECT pk, row_number() OVER (ORDER BY at) AS place, sum(pg_catalog.pg_column_size(pk)) OVER (ORDER BY at) AS size
    FROM (SELECT at, {pk} AS pk FROM ({changes}) wakeful_changed) wakeful_keys
  ) wakeful_placed
) wakeful_change
LEFT JOIN triggers_cause_of_change() ON true
WHERE rows > 0 AND EXISTS (SELECT FROM triggers_source WHERE id = {source})
