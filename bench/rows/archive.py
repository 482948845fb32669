"""A million archived events, as a month of webhooks would have left them."""

import time
from collections.abc import Callable

import psycopg

from bench.rows.scale import CHUNK, prepare, vacuum

CLUSTERED = 30_000  # the oldest events have a type of their own: frequent, but far from the newest
REPLAYED = 10_000  # the newest events have a type that starts runs
INDEXES = {
    "event_by_field": "USING gin (triggers_searchable(data) jsonb_path_ops)",
    "event_dispatched": "(seq)",
    "event_by_source_seq": "(source_id, seq)",
}
ARCHIVED = f"""
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256,
                            received_at, dispatched_at, root_id, depth)
SELECT event, CASE WHEN n %% 20000 = 77 THEN %(rare)s::uuid ELSE %(source)s::uuid END, 'shop', 'delivery-' || n,
  CASE WHEN n <= {CLUSTERED} THEN 'legacy.order' WHEN n > %(total)s::bigint - {REPLAYED} THEN 'bench.noop'
       WHEN n %% 50000 = 5 THEN 'order.disputed'
       ELSE (ARRAY['order.placed', 'order.paid', 'order.shipped', 'customer.seen', 'stock.counted'])[1 + n %% 5] END,
  'customer-' || n %% 50000,
  jsonb_build_object(
    'id', 'ord_' || n, 'customer', jsonb_build_object('id', n %% 50000, 'email', 'c' || n %% 50000 || '@example.com'),
    'total', n %% 9973, 'currency', (ARRAY['EUR', 'USD', 'GBP'])[1 + n %% 3], 'note', md5(n::text) || md5((n * 7)::text),
    'items', (SELECT jsonb_agg(jsonb_build_object('sku', 'sku-' || (n * 31 + k * 7919) %% 20000, 'count', k, 'price', (n + k) %% 500,
                                                  'text', md5((n + k)::text))) FROM generate_series(1, 4) k)),
  '', '{{}}', encode(sha256(n::text::bytea), 'hex'), moment, moment + interval '20 ms', event, 0
FROM (
  SELECT n, pg_temp.at(n, %(total)s::bigint) AS moment FROM generate_series(%(first)s::bigint, %(last)s::bigint) n
) past, LATERAL (SELECT pg_temp.id(moment, '7', 'archived' || n) AS event) ids
"""  # noqa: S608


def add_archive(database_url: str, events: int, say: Callable[[str], None]) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        prepare(connection)
        sources: dict[str, object] = dict(connection.execute("SELECT slug, id FROM triggers_source").fetchall())
        began = time.monotonic()
        given = {"total": events, "source": sources["cli"], "rare": sources["manual"]}
        for first in range(1, events + 1, CHUNK):
            connection.execute(ARCHIVED, {**given, "first": first, "last": min(first + CHUNK - 1, events)})
        say(f"{events:,} events in {time.monotonic() - began:.0f} s")
        vacuum(connection)


def drop_indexes(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for name in INDEXES:
            connection.execute(f"DROP INDEX IF EXISTS {name}")


def make_indexes(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for name, columns in INDEXES.items():
            where = "WHERE dispatched_at IS NOT NULL"
            connection.execute(f"CREATE INDEX IF NOT EXISTS {name} ON triggers_event {columns} {where}")
