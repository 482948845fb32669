"""Rows in bulk: a past of finished runs, and queues of runs that wait, as months of use would have left them."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import psycopg

CHUNK = 500_000  # rows of one statement
SESSIONS = 2  # that write at once
DAYS = 30  # over which the past is spread

# Ids as the product makes them: the milliseconds first, then a hash. Names of the bench's own, in its own session.
FUNCTIONS = """
CREATE FUNCTION pg_temp.at(n bigint, total bigint) RETURNS timestamptz LANGUAGE sql STABLE AS
  $$ SELECT '{ends}'::timestamptz - make_interval(secs => {days} * 86400.0 * (total - n + 1) / total) $$;
CREATE FUNCTION pg_temp.id(moment timestamptz, version text, salt text) RETURNS uuid LANGUAGE sql STABLE AS
  $$ SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0')
             || version || substr(md5(salt), 1, 3) || 'a' || substr(md5(salt), 4, 15))::uuid $$;
"""
FROM_PAST = """
FROM (
  SELECT n, pg_temp.at(n, %(total)s::bigint) AS moment, 'past-' || n %% 5 AS trigger
  FROM generate_series(%(first)s::bigint, %(last)s::bigint) n
  OFFSET 0
) past, LATERAL (
  SELECT pg_temp.id(moment, '7', 'event' || n) AS event, pg_temp.id(moment, '8', 'run' || n) AS run,
         CASE WHEN n %% 50 = 0 THEN 'failed' WHEN n %% 199 = 0 THEN 'cancelled' ELSE 'succeeded' END AS status
  OFFSET 0
) ids
"""
EVENTS = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256,
                            received_at, dispatched_at, root_id, depth)
SELECT event, %(source)s::uuid, 'past', to_char(moment, 'YYYYMMDDHH24MISSUS') || n, 'past.' || n %% 5, '',
       jsonb_build_object('n', n, 'text', repeat('x', 200)), '', '{}', '', moment, moment + interval '20 ms', event, 0
"""
RUNS = """
INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, policy, priority, replay_id, root_id, depth,
                      status, status_reason, claimed_at, deadline_at, attempt, epoch, worker_id, pid, key, key_limit,
                      result, error, created_at, started_at, finished_at)
SELECT run, 'default', trigger, '1', trigger, md5(trigger)::uuid, ARRAY[event], %(policy)s::jsonb, 5, %(nil)s::uuid, event, 0,
       status, '', moment + interval '30 ms', moment + interval '65 s', 1, 1, md5('worker' || n %% 20)::uuid, 1000 + n %% 8,
       CASE WHEN n %% 5 = 0 THEN md5(trigger)::uuid || ':' || n %% 1000 END, 1,
       '{"done": true}', CASE status WHEN 'succeeded' THEN '' ELSE 'ValueError: no such invoice' END,
       moment + interval '20 ms', moment + interval '30 ms', moment + interval '35 ms'
"""
ATTEMPTS = """
INSERT INTO runs_attemptrow (run_id, epoch, number, worker_id, pid, started_at, ended_at, outcome, error, traceback)
SELECT run, 1, 1, md5('worker' || n %% 20)::uuid, 1000 + n %% 8, moment + interval '30 ms', moment + interval '35 ms', status,
       'ValueError: no such invoice', repeat('at line 12 in shop/agents.py ', 10)
"""
LEDGER = """
INSERT INTO runs_processedevent (event_id, consumer, replay_id, run_id, processed_at)
SELECT event, trigger, %(nil)s::uuid, run, moment + interval '35 ms'
"""
DECISIONS = """
INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason, run_id, created_at)
SELECT event, %(trigger)s::uuid, %(nil)s::uuid, 'overlap', 'a run of its key was live', run, moment + interval '20 ms'
"""
NOTES = """
INSERT INTO runs_notification (sender, run_id, urgency, text, created_at, planned_at)
SELECT trigger, run, 'normal', 'Invoice ' || n || ' is overdue', moment + interval '35 ms', moment + interval '40 ms'
"""
AUDIT = """
INSERT INTO runs_auditentry (by, action, kind, object_id, detail, at)
SELECT 'admin:ada', 'requeue', 'run', run::text, '{}', moment + interval '1 hour'
"""
# The success of an atomic run has no attempt. Every tenth event also matched a trigger that did not want a second run; notes and
# entries are rarer.
TABLES = (
    (EVENTS, ""),
    (RUNS, ""),
    (ATTEMPTS, "WHERE status <> 'succeeded'"),
    (LEDGER, "WHERE status = 'succeeded'"),
    (DECISIONS, "WHERE n %% 10 = 0"),
    (NOTES, "WHERE n %% 500 = 0"),
    (AUDIT, "WHERE n %% 500 = 0"),
)
WAITING = """
INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, policy, priority, replay_id, root_id, depth,
                      status, status_reason, ready_at, due_at, attempt, epoch, key, key_limit, slot, error)
SELECT ids.run, 'default', %(agent)s::text, '', %(slug)s::text,
       %(trigger)s::uuid, ARRAY[ids.event], %(policy)s::jsonb, 5, %(nil)s::uuid, ids.event, 0,
       'queued', '', {ready_at}, {due_at}, {attempt}, {attempt}, {key}, 1, {slot}, ''
FROM (SELECT n, now() - make_interval(secs => (%(total)s::bigint - n) / 1000.0) AS moment
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) n) waiting,
LATERAL (SELECT pg_temp.id(moment, '7', %(salt)s::text || n) AS event, pg_temp.id(moment, '8', %(salt)s::text || n) AS run) ids
"""
READY = {
    "ready_at": "clock_timestamp()",
    "due_at": "NULL::timestamptz",
    "attempt": "0",
    "key": "NULL",
    "slot": "NULL::smallint",
}
BACKOFF = READY | {"ready_at": "NULL", "due_at": "now() + make_interval(secs => 3600 + n / 100.0)", "attempt": "1"}
# All behind one key: the first has its slot, the others wait for it.
BLOCKED = READY | {
    "ready_at": "CASE WHEN n = 1 THEN clock_timestamp() END",
    "key": "%(trigger)s::text || ':busy'",
    "slot": "CASE WHEN n = 1 THEN 1 END",
}
NIL = "00000000-0000-0000-0000-000000000000"
POLICY = json.dumps(
    {
        "queue": "default",
        "priority": 5,
        "timeout": 60,
        "retries": 3,
        "backoff": 1,
        "backoff_factor": 3,
        "backoff_max": 900,
        "pause_after": 10,
        "overlap": "allow",
    }
)


def add_past(database_url: str, runs: int, say: Callable[[str], None]) -> None:
    """`runs` finished runs with their events, attempts, ledger, decisions, notifications and audit entries."""
    # One end for all tables: their ids come from the same moments.
    ends = datetime.now(UTC)

    def add(statement: str, where: str) -> None:
        began = time.monotonic()
        table = statement.split()[2]
        with psycopg.connect(database_url) as connection:
            prepare(connection, ends)
            [source] = connection.execute("SELECT id FROM triggers_source WHERE slug = 'cli'").fetchone() or ()
            [trigger] = connection.execute("SELECT id FROM triggers_trigger ORDER BY slug LIMIT 1").fetchone() or ()
            given = {"total": runs, "source": source, "trigger": trigger, "nil": NIL, "policy": POLICY}
            if not connection.execute(f"SELECT FROM {table} LIMIT 1").fetchone() and not has_referrers(
                connection, table
            ):
                # What is written to a file of this transaction's own stands in no WAL, where `wal_level` is minimal.
                connection.execute(f"TRUNCATE {table}")
            for first in range(1, runs + 1, CHUNK):
                rows = {**given, "first": first, "last": min(first + CHUNK - 1, runs)}
                connection.cursor().execute(statement + FROM_PAST + where, rows)
        say(f"{table}: {runs:,} in {time.monotonic() - began:.0f} s")

    with ThreadPoolExecutor(SESSIONS) as sessions:
        list(sessions.map(lambda made: add(*made), TABLES))
    with psycopg.connect(database_url, autocommit=True) as connection:
        vacuum(connection)


def has_referrers(connection: psycopg.Connection, table: str) -> bool:
    found = "SELECT FROM pg_constraint WHERE contype = 'f' AND confrelid = %s::regclass"
    return connection.execute(found, [table]).fetchone() is not None


def add_waiting(database_url: str, count: int, agent: str, how: dict[str, str]) -> None:
    """`count` queued runs of `agent`: READY, BACKOFF or BLOCKED."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        prepare(connection)
        [slug, trigger] = (
            connection.execute("SELECT slug, id::text FROM triggers_trigger ORDER BY slug LIMIT 1").fetchone() or ()
        )
        given = {"agent": agent, "slug": slug, "trigger": trigger, "nil": NIL, "policy": POLICY, "total": count}
        for first in range(1, count + 1, CHUNK):
            rows = {**given, "salt": str(time.time_ns()), "first": first, "last": min(first + CHUNK - 1, count)}
            connection.execute(WAITING.format(**how), rows)
        vacuum(connection)


def forget_runs(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("TRUNCATE runs_run, runs_attemptrow, runs_processedevent, runs_outboxmessage CASCADE")


TABLES_IN_BULK = """ARRAY['triggers_event', 'runs_run', 'runs_attemptrow', 'runs_processedevent', 'triggers_decision', 'runs_wait',
                     'runs_approval']::regclass[]"""
INDEXES = f"""
SELECT indrelid::regclass::text, indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid = ANY ({TABLES_IN_BULK}) AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
"""
CONSTRAINTS = f"""
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), contype IN ('p', 'u') FROM pg_constraint
WHERE contype IN ('p', 'u', 'c', 'f') AND (conrelid = ANY ({TABLES_IN_BULK}) OR confrelid = ANY ({TABLES_IN_BULK}))
ORDER BY contype = 'f' DESC
"""


@contextmanager
def bulk(connection: psycopg.Connection, say: Callable[[str], None]) -> Iterator[None]:
    """Inside the block the large tables are without indexes, keys and constraints; to make those at its end takes a fraction of the
    time. The rows of the bench fulfil the constraints: they are not checked."""
    indexes = connection.execute(INDEXES).fetchall()
    constraints = connection.execute(CONSTRAINTS).fetchall()
    for table, name, _, _ in constraints:
        connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    for _, name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    yield
    began = time.monotonic()
    made: dict[str, list[str]] = defaultdict(list)
    for table, name, definition, is_key in constraints:
        if is_key:
            made[table].append(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
    for table, _, definition in indexes:
        made[table].append(definition)
    with ThreadPoolExecutor(SESSIONS) as sessions:
        list(sessions.map(partial(make_indexes, connection.info), made.values()))
    for table, name, definition, is_key in constraints:
        if not is_key:
            connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition} NOT VALID")
    connection.execute("UPDATE pg_constraint SET convalidated = true WHERE NOT convalidated")
    say(f"{len(indexes)} indexes and {len(constraints)} constraints in {time.monotonic() - began:.0f} s")


def make_indexes(info: psycopg.ConnectionInfo, statements: list[str]) -> None:
    with psycopg.connect(info.dsn, password=info.password, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '1GB'")
        for statement in statements:
            connection.execute(statement)


def prepare(connection: psycopg.Connection, ends: datetime | None = None) -> None:
    # Row triggers guard what the product changes; what never happened otherwise needs no guard.
    connection.execute("SET session_replication_role = replica")
    connection.execute("SET synchronous_commit = off")
    connection.execute(FUNCTIONS.format(days=DAYS, ends=(ends or datetime.now(UTC)).isoformat()))


def vacuum(connection: psycopg.Connection) -> None:
    connection.execute("VACUUM (ANALYZE)")
