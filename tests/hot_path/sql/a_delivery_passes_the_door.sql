-- a delivery passes the door

\set p1 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p2 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p3 '''text'''
\set p4 '''0'''
\set p5 '''order.paid'''
\set p6 ''''''
\set p7 'NULL'
\set p8 '''{}''::jsonb'
\set p9 ''''''
\set p10 '''\\x00''::bytea'
\set p11 '''{}''::jsonb'
\set p12 '''text'''
\set p13 'NULL'
\set p14 '''01990000-0000-7000-8000-000000000000''::uuid'
\set p15 'NULL'
\set p16 'NULL'
\set p17 '1'
\set p18 '''{}'''
\set p19 'false'
\set p20 '''\\x00''::bytea'
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, "time", data, data_error, body, headers,
                            body_sha256, target_id, root_id, cause_event_id, cause_run_id, depth, chain, is_tainted)
SELECT * FROM (
  VALUES (:p1::uuid, :p2::uuid, :p3::text, :p4::text, :p5::text, :p6::text, :p7::timestamptz, :p8::jsonb, :p9::text, :p10::bytea, :p11::jsonb,
          :p12::text, :p13::uuid, :p14::uuid, :p15::uuid, :p16::uuid, :p17::smallint, :p18::text[], :p19::boolean)) AS event (id, source_id)
WHERE EXISTS (SELECT FROM triggers_source source WHERE id = event.source_id AND enabled AND sha256(convert_to(ROW(source.id, source.slug, source.kind, source.settings, source.limits, ARRAY(
  SELECT ROW(secret.id, encode(secret.ciphertext, 'base64')) FROM triggers_secret secret WHERE secret.source_id = source.id
    AND secret.not_before <= statement_timestamp() AND (secret.not_after IS NULL OR secret.not_after > statement_timestamp())
  ORDER BY secret.id))::text, 'UTF8')) = :p20::bytea)
ON CONFLICT (source_id, ce_source, ce_id) DO NOTHING
RETURNING id;
