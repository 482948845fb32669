BEGIN  -- a column of the condition may be gone, and some conditions fail on some values; nothing is written here
    PERFORM count(*) FROM {rows} AS wakeful_row WHERE {condition};
  EXCEPTION WHEN OTHERS THEN
    {poison};
    RETURN NULL;
  END;
