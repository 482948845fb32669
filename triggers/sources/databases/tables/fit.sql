-- Without the schema of its own (dropped by hand, half restored or half upgraded) it fails no statement of the table's owner: the change is
  -- no event, the server's log says so, and `doctor` names what is missing. A look at the catalog, as a block with an EXCEPTION would make
  -- a subtransaction of each write.
  IF to_regclass('triggers_source') IS NULL OR to_regclass('triggers_event') IS NULL OR to_regclass('triggers_poisonmessage') IS NULL
    OR to_regclass('triggers_seq') IS NULL OR to_regproc('triggers_row_as_json') IS NULL OR to_regproc('triggers_is_readable') IS NULL
    OR to_regproc('triggers_uuid7') IS NULL OR to_regproc('triggers_cause_of_change') IS NULL
  THEN
    RAISE LOG 'changes of % are no events: tables or functions of Wakeful are missing', TG_RELID::regclass;
    RETURN NULL;
  END IF;
