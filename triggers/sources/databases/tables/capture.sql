-- {settings}
#variable_conflict use_column
DECLARE
  wakeful_recorded int;
  wakeful_is_plain boolean;
  wakeful_hidden text[];
  wakeful_excluded text[];
  wakeful_unnamed text[];
BEGIN
  -- Its source may have been deleted by SQL: the triggers go with the next check.
  IF NOT EXISTS (SELECT FROM {rows}) OR NOT EXISTS (SELECT FROM triggers_source WHERE id = {source}) THEN
    RETURN NULL;
  END IF;
  {guard}
  {columns}
  {insert};
  GET DIAGNOSTICS wakeful_recorded = ROW_COUNT;
  IF wakeful_recorded = {most} AND (SELECT count(*) FROM {rows}) > {most} THEN
    {poison};
  END IF;
  RETURN NULL;
END
