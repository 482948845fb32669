-- {settings}
#variable_conflict use_column
DECLARE
  wakeful_recorded int;
  wakeful_is_plain boolean;
  wakeful_is_known boolean;  -- the columns are those of the settings' time
  wakeful_hidden text[];
  wakeful_excluded text[];
  wakeful_unnamed text[];
BEGIN
  IF NOT EXISTS (SELECT FROM {first}) THEN
    RETURN NULL;
  END IF;
  {fit}
  {pairs}
  {guard}
  {columns}
  -- SQL may have deleted its source: the triggers go with the next check. The INSERT looks for it with its lock of the events, with which
  -- that of a deletion conflicts: the source is gone, or stays until this transaction has ended.
  IF wakeful_is_known THEN
    {insert_stored};
  ELSE
    {insert};
  END IF;
  GET DIAGNOSTICS wakeful_recorded = ROW_COUNT;
  IF wakeful_recorded = {most} AND (SELECT count(*) FROM {rows}) > {most} THEN
    {poison};
  END IF;
  IF current_setting('wakeful.unreadable', true) <> '' THEN  -- said by triggers_row_as_json
    PERFORM set_config('wakeful.unreadable', '', true);
    {unreadable};
  END IF;
  RETURN NULL;
END
