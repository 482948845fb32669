-- Of a column that has come since, no settings say anything: it is excluded if it looks like a secret, and each is if an excluded
  -- column is gone, which may have been renamed. Every value of plain types is JSON that can be read; numeric(300) has numbers of a double.
  SELECT coalesce(bool_and(atttypid = ANY({plain}) OR atttypid = 1700 AND atttypmod BETWEEN 4 AND 300 << 16 AND (atttypmod - 4) & 1024 = 0
      OR is_known AND attname <> ALL({stored})), true),
    coalesce(bool_and(is_known), false),
    coalesce(array_agg(attname::text) FILTER (WHERE attname <> ALL({known}) AND (attname ~* {secret} OR is_one_gone)), '{}')
  INTO wakeful_is_plain, wakeful_is_known, wakeful_hidden
  FROM (
    SELECT *, count(*) OVER () = cardinality({typed}) AND bool_and(attname || ' ' || atttypid = ANY({typed})) OVER () AS is_known, count(*) FILTER (WHERE attname = ANY({excluded})) OVER () < cardinality({excluded}) AS is_one_gone
    FROM pg_attribute WHERE attrelid = TG_RELID AND attnum > 0 AND NOT attisdropped
  ) wakeful_column;
  wakeful_excluded := {excluded} || wakeful_hidden;
  wakeful_unnamed := {unnamed} || wakeful_hidden;
