-- {settings}
#variable_conflict use_column
DECLARE
  wakeful_recorded int;
  wakeful_is_plain boolean;
  wakeful_hidden text[];
  wakeful_excluded text[];
  wakeful_unnamed text[];
BEGIN
  IF NOT EXISTS (SELECT FROM triggers_source WHERE id = {source}) THEN
    RETURN NULL;
  END IF;
  {columns}
  BEGIN
    EXECUTE replace({insert}, 'wakeful_truncated', TG_RELID::regclass::text) USING wakeful_is_plain, wakeful_excluded;
    GET DIAGNOSTICS wakeful_recorded = ROW_COUNT;
  EXCEPTION WHEN OTHERS THEN
    {failed};
    RETURN NULL;
  END;
  IF wakeful_recorded = {most} THEN
    {too_many};
  END IF;
  RETURN NULL;
END
