#variable_conflict use_column
DECLARE
  wakeful_recorded int;
BEGIN
  IF NOT EXISTS (SELECT FROM {rows}) THEN
    RETURN NULL;
  END IF;
  {guard}
  {insert};
  GET DIAGNOSTICS wakeful_recorded = ROW_COUNT;
  IF wakeful_recorded = {most} THEN
    INSERT INTO triggers_poisonmessage (source_id, origin, message_id, reason, body, size, headers)
    SELECT {poison}, 'A statement changed ' || total || ' rows: only the first {most} that meet the condition are events', '', 0, '{}'
    FROM (SELECT count(*) AS total FROM {rows}) counted WHERE total > {most}
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END
