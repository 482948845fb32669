SELECT at, old, new, ARRAY(SELECT key FROM jsonb_each(new - wakeful_unnamed) WHERE value IS DISTINCT FROM old -> key) AS changed
FROM (
  SELECT at, {old_row} AS old, {new_row} AS new
  FROM (SELECT row_number() OVER () AS at, {row} AS wakeful_new, {condition} AS passes FROM wakeful_new_rows AS wakeful_row) new_rows
  JOIN (SELECT row_number() OVER () AS at, {row} AS wakeful_old FROM wakeful_old_rows AS wakeful_row) old_rows USING (at)
  WHERE passes AND wakeful_old *<> wakeful_new OFFSET 0
) wakeful_pair
WHERE {differs}
