-- {settings}
#variable_conflict use_column
DECLARE
  wakeful_recorded int;
  wakeful_is_plain boolean;
  wakeful_is_known boolean;
  wakeful_hidden text[];
  wakeful_excluded text[];
  wakeful_unnamed text[];
BEGIN
  {fit}
  {columns}
  BEGIN
    EXECUTE replace(CASE WHEN wakeful_is_known THEN {insert_stored} ELSE {insert} END, 'wakeful_truncated', TG_RELID::regclass::text) USING wakeful_is_plain, wakeful_excluded;
    GET DIAGNOSTICS wakeful_recorded = ROW_COUNT;
  EXCEPTION WHEN OTHERS THEN
    {failed};
    RETURN NULL;
  END;
  IF wakeful_recorded = {most} THEN
    {too_many};
  END IF;
  IF current_setting('wakeful.unreadable', true) <> '' THEN
    PERFORM set_config('wakeful.unreadable', '', true);
    {unreadable};
  END IF;
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    {unseen};
  END IF;
  RETURN NULL;
END
