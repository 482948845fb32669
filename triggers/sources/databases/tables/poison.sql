-- One of a table, an operation and about a minute: a fault that lasts fills no table, and no session waits for another.
    INSERT INTO triggers_poisonmessage (source_id, origin, message_id, reason, body, size, headers)
    SELECT {source}, TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME,
      pg_catalog.concat_ws(' ', {operation}, pg_backend_pid(), date_trunc('minute', now())), {reason}, '', 0, '{}'
    WHERE EXISTS (SELECT FROM triggers_source WHERE id = {source}) AND NOT EXISTS (
      SELECT FROM triggers_poisonmessage WHERE source_id = {source} AND last_at > clock_timestamp() - interval '1 minute'
        AND origin = TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME AND starts_with(message_id, {operation} || ' '))
    ON CONFLICT DO NOTHING
