"""Durable runs that wait, in bulk, as claims of theirs would have left them: each with its journal of one wait."""

import json
import time

import psycopg

from bench.rows.scale import NIL, POLICY, prepare, vacuum

# `number` is what an event must bear to end a wait for one.
RUNS = """
CREATE TEMPORARY TABLE made AS
SELECT n, {kind} AS kind, {number} AS number, gen_random_uuid() AS event, moment, pg_temp.id(moment, '8', %(salt)s::text || n) AS run
FROM (SELECT n, now() - make_interval(secs => (%(count)s::bigint - n) / 1000.0) AS moment
      FROM generate_series(1, %(count)s::bigint) n) numbered;
"""
INSERT_RUNS = """
INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, input, policy, priority, replay_id, root_id, depth,
                      status, status_reason, ready_at, attempt, epoch, key_limit, error, created_at, started_at)
SELECT run, 'default', 'bench.waiter', '1', '', NULL, ARRAY[event], jsonb_build_object('for', kind, 'number', number),
       %(policy)s::jsonb, 5, %(nil)s::uuid, event, 0, {status}, '', {ready_at}, 0, 1, 1, '', moment, moment
FROM made
"""
INSERT_ATTEMPTS = """
INSERT INTO runs_attemptrow (run_id, epoch, number, started_at, ended_at, outcome, error, traceback)
SELECT run, 1, 1, moment, moment + interval '5 ms', 'waiting', '', '' FROM made
"""
INSERT_WAITS = """
INSERT INTO runs_wait (run_id, key, position, is_keyed, kind, status, due_at, event_type, match, match_shape, match_hash, children,
                       looked_at, ended_at)
SELECT run, CASE kind WHEN 'time' THEN 'sleep#1' WHEN 'event' THEN 'event bench.awaited#1' ELSE 'approval#1' END, 0, false, kind,
       {wait}, CASE kind WHEN 'time' THEN {due_at} END,
       CASE kind WHEN 'event' THEN 'bench.awaited' ELSE '' END,
       CASE kind WHEN 'event' THEN jsonb_build_object('number', number) END,
       CASE kind WHEN 'event' THEN '["number"]' ELSE '' END,
       CASE kind WHEN 'event' THEN encode(sha256(convert_to('[' || number || ']', 'UTF8')), 'hex') ELSE '' END,
       '{{}}', now(), {ended_at}
FROM made
"""
INSERT_APPROVALS = """
INSERT INTO runs_approval (id, wait_id, question, detail, digest, on_expiry, decision, decided_digest, decided_by, reason)
SELECT gen_random_uuid(), wait.id, 'May it go on?', '', '', 'deny', '', '', '', ''
FROM made JOIN runs_wait wait ON wait.run_id = made.run WHERE made.kind = 'approval'
"""
MIXED = {
    "kind": "(ARRAY['time', 'event', 'approval'])[1 + n % 3]",
    "number": "n + %(after)s::bigint",
    "status": "'waiting'",
    "ready_at": "NULL::timestamptz",
    "wait": "'open'",
    "due_at": "now() + interval '30 days' + make_interval(secs => n)",
    "ended_at": "NULL::timestamptz",
}
# For one instant, or for one event.
AT_ONE_INSTANT = MIXED | {"kind": "'time'", "due_at": "%(instant)s::timestamptz"}
FOR_ONE_EVENT = MIXED | {"kind": "'event'", "number": "-1"}
# As MIXED rows are after they were woken, without the need to wake them.
READY = MIXED | {
    "kind": "'time'",
    "status": "'queued'",
    "ready_at": "clock_timestamp()",
    "wait": "'done'",
    "due_at": "now()",
    "ended_at": "now()",
}


def add_waiting(database_url: str, count: int, how: dict[str, str], *, after: int = 0, instant: object = None) -> float:
    """Add waiting runs in one commit, and notify the dispatcher; seconds since 1970 just before that commit. MIXED ones have the numbers
    that come `after` one."""
    with psycopg.connect(database_url) as connection:
        prepare(connection)
        given = {
            "count": count,
            "salt": str(time.time_ns()),
            "policy": json.dumps({**json.loads(POLICY), "durable": True}),
            "nil": NIL,
            "after": after,
            "instant": instant,
        }
        for statement in (RUNS, INSERT_RUNS, INSERT_ATTEMPTS, INSERT_WAITS, INSERT_APPROVALS):
            cursor = psycopg.ClientCursor(connection)
            cursor.execute(statement.format(**how).replace("1 + n % 3", "1 + n %% 3"), given)
        connection.execute("NOTIFY wakeful_dispatcher")
        began = time.time()
        connection.commit()
    return began


def vacuum_database(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        vacuum(connection)
