BEGIN  -- a column of the condition may be gone; LIMIT 0: it is planned, and no row is read
    PERFORM FROM {rows} AS wakeful_row WHERE {condition} LIMIT 0;
  EXCEPTION WHEN OTHERS THEN
    INSERT INTO triggers_poisonmessage (source_id, origin, message_id, reason, body, size, headers)
    SELECT {poison}, 'The condition does not fit the table, so the changes of a statement are no events: ' || SQLERRM, '', 0, '{}'
    ON CONFLICT DO NOTHING;
    RETURN NULL;
  END;
