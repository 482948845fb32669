#variable_conflict use_column
DECLARE
  wakeful_recorded int;
BEGIN
  BEGIN
    EXECUTE replace({insert}, 'wakeful_truncated', TG_RELID::regclass::text);
    GET DIAGNOSTICS wakeful_recorded = ROW_COUNT;
  EXCEPTION WHEN OTHERS THEN
    INSERT INTO triggers_poisonmessage (source_id, origin, message_id, reason, body, size, headers)
    SELECT {poison}, 'The rows of a TRUNCATE are no events: ' || SQLERRM, '', 0, '{}'
    ON CONFLICT DO NOTHING;
    RETURN NULL;
  END;
  IF wakeful_recorded = {most} THEN
    INSERT INTO triggers_poisonmessage (source_id, origin, message_id, reason, body, size, headers)
    SELECT {poison}, 'A TRUNCATE deleted {most} rows or more: the first {most} that meet the condition are events', '', 0, '{}'
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END
