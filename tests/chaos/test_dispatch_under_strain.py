"""Dispatch on real dispatcher processes under loads and faults that once stopped it for ever. `make chaos ALL=1` runs these."""

import os
import time
from collections.abc import Iterator

import psycopg
import pytest

from agents.journal.canonical import match_of
from runs.db.sql import execute
from runs.models import NIL
from tests.support.stack import Stack, eventually
from tests.support.triggers import make_event, make_paused_trigger, make_trigger
from triggers.accept import builtin_source
from triggers.models import Event, Trigger

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(600)]

# Ids of one millisecond for ten rows, as a busy host makes them.
ID = """(lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - 1000000 + n / 10), 12, '0') || '{version}'
  || substr(md5('{salt}' || n), 1, 3) || 'a' || substr(md5('{salt}' || n), 4, 15))::uuid"""
EVENTS = f"""
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256, received_at,
  dispatched_at, root_id, depth)
SELECT {ID.format(version="7", salt="e")}, %(source)s::uuid, 'x', %(type)s::text || n, %(type)s::text, '', '{{}}', '', '{{}}', '',
  now(), CASE WHEN %(dispatched)s::boolean THEN now() END, gen_random_uuid(), 0
FROM generate_series(1, %(count)s::int) n
"""
HELD = """
INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason)
SELECT id, %s::uuid, %s::uuid, 'held', 'paused' FROM triggers_event WHERE type = 'held.one' ORDER BY seq
"""
WAITING = f"""
WITH new AS (
  INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, policy, priority, replay_id, root_id, depth,
    status, status_reason, attempt, epoch, key_limit, error)
  SELECT {ID.format(version="8", salt="r")}, 'default', 'durable', '1', 'durable', gen_random_uuid(), ARRAY[gen_random_uuid()],
    '{{}}', 5, '{NIL}', gen_random_uuid(), 0, 'waiting', 'w', 0, 1, 1, ''
  FROM generate_series(1, %(count)s::int) n RETURNING id
)
INSERT INTO runs_wait (run_id, key, position, is_keyed, kind, status, event_type, match, match_shape, match_hash, children, looked_at)
SELECT id, 'event go#1', 0, false, 'event', 'open', 'go', '{{}}'::jsonb, %(shape)s::text, %(hash)s::text, '{{}}', clock_timestamp()
FROM new
"""
FRESH = int(os.environ.get("FRESH", "1200"))  # events beside the held ones, twenty a second
UNDISPATCHED = "SELECT count(*) AS n FROM triggers_event WHERE dispatched_at IS NULL"


@pytest.fixture
def database(stack: Stack) -> Iterator[Stack]:
    with stack.orm():
        yield stack


def events(count: int, type: str, *, dispatched: bool = False) -> None:
    execute(EVENTS, {"source": builtin_source("cli"), "count": count, "type": type, "dispatched": dispatched})


def number(stack: Stack, query: str) -> int:
    return int(stack.query(query)[0]["n"])


def sessions_lost(stack: Stack) -> int:
    return sum("database_gone" in process.output() for process in stack.processes)


def test_a_flood_of_fan_out_delays_no_other_event(database: Stack) -> None:
    Trigger.objects.bulk_create(Trigger(slug=f"t{n}", agent=f"t{n}", types=["order.*"]) for n in range(140))
    events(505, "order.placed")
    unrelated = [make_event(type="unrelated").pk for _ in range(5)]

    database.start("dispatcher").wait_ready()
    began = time.monotonic()
    eventually(lambda: not Event.objects.filter(pk__in=unrelated, dispatched_at=None).exists(), 120)
    passed = time.monotonic() - began
    eventually(lambda: not number(database, UNDISPATCHED), 500)

    print(f"\nunrelated after {passed:.1f} s, all after {time.monotonic() - began:.1f} s")
    assert passed < 30
    assert number(database, "SELECT count(*) AS n FROM runs_run") == 505 * 140
    assert not sessions_lost(database)


def test_two_dispatchers_wake_120_000_runs_by_one_event_once(database: Stack) -> None:
    shape, hash = match_of({})
    execute(WAITING, {"count": 120_000, "shape": shape, "hash": hash})
    execute("ANALYZE")
    for _ in range(2):
        database.start("dispatcher").wait_ready()
    began = time.monotonic()
    make_event(type="go")

    eventually(lambda: not number(database, UNDISPATCHED), 400)

    print(f"\nall woken after {time.monotonic() - began:.1f} s")
    assert not number(database, "SELECT count(*) AS n FROM runs_wait WHERE status = 'open'")
    assert number(database, "SELECT count(*) AS n FROM runs_run WHERE status = 'queued'") == 120_000
    assert not sessions_lost(database)


@pytest.mark.parametrize("overlap", ["allow", "queue"])
def test_400_000_held_events_are_resumed_beside_fresh_ones(database: Stack, overlap: str) -> None:
    make_trigger("fresh", types=["fresh.*"])
    trigger = make_paused_trigger(
        "held", types=["held.*"], overlap=overlap, key="event.id" if overlap == "queue" else ""
    )
    events(400_000, "held.one", dispatched=True)
    execute(HELD, [trigger.pk, NIL])
    execute("ANALYZE")
    database.start("dispatcher").wait_ready()

    database.manage("shell", "-c", RESUME)
    began = time.monotonic()
    for sent in range(FRESH):
        make_event(type="fresh.one")
        time.sleep(max(0.0, began + (sent + 1) / 20 - time.monotonic()))  # twenty a second
    eventually(lambda: not number(database, UNDISPATCHED), 60)

    [row] = database.query(
        "SELECT extract(epoch FROM percentile_cont(0.99) WITHIN GROUP (ORDER BY dispatched_at - received_at))::float8 AS p99, "
        "extract(epoch FROM max(dispatched_at - received_at))::float8 AS most, count(*) AS n "
        "FROM triggers_event WHERE type = 'fresh.one'"
    )
    resumed = number(database, "SELECT count(*) AS n FROM triggers_decision WHERE outcome = 'resumed'")
    print(f"\n{row['n']} fresh events: p99 {row['p99']:.3f} s, most {row['most']:.3f} s; {resumed:,} resumed meanwhile")
    assert row["p99"] < 1
    assert resumed > 1000
    assert not sessions_lost(database)


RESUME = (
    "from triggers.dispatch.hold import resume; from triggers.models import Trigger; "
    "resume(Trigger.objects.get(slug='held'), by='test')"
)


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        ("ALTER TABLE runs_run RENAME COLUMN chain TO chains", "ALTER TABLE runs_run RENAME COLUMN chains TO chain"),
        ("REVOKE INSERT ON runs_run FROM lesser", "GRANT INSERT ON runs_run TO lesser"),
    ],
    ids=["column renamed", "INSERT revoked"],
)
def test_events_whose_dispatch_the_database_refuses_for_a_while_are_dispatched_after(
    database: Stack, broken: str, mended: str
) -> None:
    make_trigger()
    database.query("DROP ROLE IF EXISTS lesser")
    database.query("CREATE ROLE lesser LOGIN PASSWORD 'lesser'")
    database.query("GRANT ALL ON ALL TABLES IN SCHEMA public TO lesser")
    database.query("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO lesser")
    database.query("GRANT CREATE, USAGE ON SCHEMA public TO lesser")
    url = psycopg.conninfo.conninfo_to_dict(database.database_url)
    lesser = f"postgres://lesser:lesser@{url['host']}:{url['port']}/{url['dbname']}"
    try:
        database.start("dispatcher", env={"DATABASE_URL": lesser}).wait_ready()
        made = send(2)
        eventually(lambda: not number(database, UNDISPATCHED))

        database.query(broken)
        made += send(15)
        database.query(mended)
        began = time.monotonic()
        made += send(2)
        eventually(lambda: not number(database, UNDISPATCHED), 60)

        print(f"\n{made} events; all dispatched {time.monotonic() - began:.1f} s after it was mended")
        assert time.monotonic() - began < 35
        assert number(database, "SELECT count(*) AS n FROM runs_run") == made
        assert not number(database, "SELECT count(*) AS n FROM triggers_decision")
        eventually(lambda: not number(database, "SELECT count(*) AS n FROM runs_alarm WHERE ended_at IS NULL"))
        assert number(database, "SELECT count(*) AS n FROM runs_alarm WHERE name = 'dispatch-refused'") == 1
    finally:
        for process in database.processes:
            process.kill()
        database.query("DROP OWNED BY lesser")
        database.query("DROP ROLE lesser")


def send(seconds: float) -> int:
    """Events, ten a second; how many."""
    count = int(seconds * 10)
    for _ in range(count):
        make_event()
        time.sleep(0.1)
    return count
