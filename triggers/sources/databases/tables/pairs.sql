-- Old and new rows are paired by their number.
  IF (SELECT count(*) FROM wakeful_old_rows) <> (SELECT count(*) FROM wakeful_new_rows) THEN
    {poison};
    RETURN NULL;
  END IF;
