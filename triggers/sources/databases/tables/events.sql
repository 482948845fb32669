INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256,
  root_id, cause_event_id, cause_run_id, depth, chain, is_tainted)
SELECT id, {source}, {origin}, id::text, {type}, left({name} || '/' || coalesce(key, ''), 500),
  CASE WHEN coalesce(pg_catalog.pg_column_size(old), 0) + coalesce(pg_catalog.pg_column_size(new), 0) <= {most_bytes}
    THEN pg_catalog.jsonb_build_object('pk', pk, 'old', old, 'new', new, 'changed', changed)
    ELSE pg_catalog.jsonb_build_object('pk', pk, 'old', NULL, 'new', NULL, 'changed', changed, 'too_large', true) END,
  '', CASE WHEN is_first THEN '{"first-of-statement": "true"}'::jsonb ELSE '{}' END, '', coalesce(cause_root_id, id), cause_event_id, cause_run_id, coalesce(cause_depth, 0), coalesce(cause_chain, '{}'),
  coalesce(cause_is_tainted, false)
FROM (
  SELECT triggers_uuid7() AS id, {pk} AS pk, {key} AS key, old - wakeful_excluded AS old, new - wakeful_excluded AS new, changed,
    {is_first} AS is_first
  FROM ({changes}) wakeful_changed {order} LIMIT {most}
) wakeful_change
LEFT JOIN triggers_cause_of_change() ON true
WHERE EXISTS (SELECT FROM triggers_source WHERE id = {source})
