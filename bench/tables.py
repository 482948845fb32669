"""What watching a table costs: bulk statements and small transactions beside an unwatched table, beside triggers for each row, and
beside logical decoding, as Debezium uses it. Whether each change is one event, also after crashes."""

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from statistics import median
from typing import Any

import psycopg

from bench.ground.own_stack import own_stack
from tests.support.stack import Stack

ROWS, ROUNDS, KILLS = 100_000, 3, 5
SESSIONS, COMMITS = 4, 500  # commits of each session
SETTINGS = {"WAKEFUL_APPS": "bench", "WAKEFUL_LOG_LEVEL": "WARNING", "WAKEFUL_MAX_BACKLOG": "1000000"}
SLOT = "bench_tables"
COLUMNS = "id bigint PRIMARY KEY, status text NOT NULL, amount numeric(12, 2), customer int, note text, changed_at timestamptz"
ROWS_OF = """
SELECT number, 'new', number * 1.25, number %% 1000, 'note ' || md5(number::text), now() FROM generate_series(1, {rows}) number
""".replace("%%", "%")
MAKE_SOURCE = """
from triggers.sources.edit import create_source
create_source({slug!r}, kind="table", settings={settings!r}, by="bench")
"""
# As django-pgtrigger and django-pghistory write them: a function for each row.
OUTBOX = """
CREATE TABLE bench_outbox (id bigserial PRIMARY KEY, operation text, key bigint, old jsonb, new jsonb, at timestamptz DEFAULT now());
CREATE FUNCTION bench_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO bench_outbox (operation, key, old, new) VALUES (TG_OP, coalesce(NEW.id, OLD.id), to_jsonb(OLD), to_jsonb(NEW));
  RETURN NULL;
END $$;
CREATE TRIGGER bench_outbox AFTER INSERT OR UPDATE OR DELETE ON bench_each_row FOR EACH ROW EXECUTE FUNCTION bench_outbox();
CREATE FUNCTION bench_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  event uuid := triggers_uuid7();
BEGIN
  INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256, root_id, depth)
  SELECT event, id, '/sources/bench/', event::text, 'db.bench.' || lower(TG_OP), 'bench/' || coalesce(NEW.id, OLD.id),
    jsonb_build_object('pk', coalesce(NEW.id, OLD.id), 'old', to_jsonb(OLD), 'new', to_jsonb(NEW), 'changed', '[]'::jsonb),
    '', '{}', '', event, 0
  FROM triggers_source WHERE slug = 'cli';
  RETURN NULL;
END $$;
CREATE TRIGGER bench_event AFTER INSERT OR UPDATE OR DELETE ON bench_each_event FOR EACH ROW EXECUTE FUNCTION bench_event();
ALTER TABLE bench_decoded REPLICA IDENTITY FULL;
CREATE PUBLICATION bench_tables FOR TABLE bench_decoded;
"""
MAKE_SLOT = f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')"
DROP_SLOT = f"SELECT pg_drop_replication_slot('{SLOT}')"
DECODE = f"""
SELECT count(*) FROM pg_logical_slot_get_binary_changes('{SLOT}', NULL, NULL, 'proto_version', '1', 'publication_names', 'bench_tables')
"""
EVENTS = "SELECT count(*), count(DISTINCT data->'pk') FROM triggers_event WHERE type LIKE %s"
OTHER = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data_error, headers, body_sha256, root_id, depth)
SELECT event.id, source.id, 'bench', event.id::text, 'bench.unheard', '', '', '{}', '', event.id, 0
FROM triggers_source source, (SELECT triggers_uuid7() AS id) event WHERE source.slug = 'cli'
"""
LEFT = "SELECT count(*) FROM triggers_event WHERE dispatched_at IS NULL AND starts_with(type, %s)"
WAITED = """
SELECT percentile_disc(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM dispatched_at - received_at))::float8[]
FROM triggers_event WHERE type = 'bench.unheard'
"""
# Its events, and a checkpoint, so that no measurement pays for another.
CLEAN = ("TRUNCATE triggers_event CASCADE", "TRUNCATE bench_outbox", "CHECKPOINT")

Say = Callable[[str], None]


@dataclass(kw_only=True)
class Ground:
    """A table, and the seconds that each statement took."""

    table: str
    name: str
    took: dict[str, list[float]] = field(default_factory=dict)


GROUNDS = (
    ("bench_unwatched", "unwatched"),
    ("bench_watched", "**watched**"),
    ("bench_each_row", "a trigger for each row, into a table with one index"),
    ("bench_each_event", "a trigger for each row, into the events"),
    ("bench_decoded", "logical decoding, REPLICA IDENTITY FULL"),
)


def section(say: Say, rows: int = ROWS, rounds: int = ROUNDS, kills: int = KILLS) -> Iterator[str]:
    """Lines of Markdown."""
    grounds = [Ground(table=table, name=name) for table, name in GROUNDS]
    with own_stack(SETTINGS) as stack:
        make_tables(stack, rows)
        decoding: list[float] = []
        for number in range(rounds):
            for ground in grounds:
                say(f"tables: round {number + 1}, {ground.table}")
                decoding += measure(stack, ground, rows)
        yield from bulk_table(grounds, rows)
        yield ""
        yield (
            f"Beyond that, the changes of such a slot are read later: {3 * rows:,} in {median(decoding):.1f} s by "
            "pg_logical_slot_get_binary_changes, without writing them anywhere."
        )
        yield ""
        say("tables: small transactions")
        yield from small_table(stack, rows)
        yield ""
        yield savepoint_line(stack, rows)
        say("tables: other events beside a bulk change")
        yield beside_line(stack, rows)
        yield from crash_lines(stack, rows, kills, say)


def make_tables(stack: Stack, rows: int) -> None:
    with session(stack) as connection:
        for table, _ in GROUNDS:
            connection.execute(f"CREATE TABLE {table} ({COLUMNS})")
        connection.execute(OUTBOX)
    settings = {"table": "public.bench_watched", "most": max(rows, 100_000)}
    stack.manage("shell", "-v0", "-c", MAKE_SOURCE.format(slug="bench-watched", settings=settings))


def measure(stack: Stack, ground: Ground, rows: int) -> list[float]:
    """INSERT … SELECT, UPDATE, DELETE and COPY of all rows; the seconds that decoding took, if any."""
    is_decoded = ground.table == "bench_decoded"
    with session(stack) as connection:
        if is_decoded:
            connection.execute(MAKE_SLOT)
        for name, act in statements(ground.table, rows).items():
            connection.execute(f"VACUUM ANALYZE {ground.table}")
            for statement in CLEAN:
                connection.execute(statement)
            began = time.perf_counter()
            with connection.transaction():
                act(connection)
            ground.took.setdefault(name, []).append(time.perf_counter() - began)
            if ground.table == "bench_watched":
                require_events(connection, rows)
        if not is_decoded:
            connection.execute(f"DELETE FROM {ground.table}")
            return []
        began = time.perf_counter()
        connection.execute(DECODE)
        took = time.perf_counter() - began
        connection.execute(DROP_SLOT)
        connection.execute(f"DELETE FROM {ground.table}")
        return [took]


def statements(table: str, rows: int) -> dict[str, Callable[[psycopg.Connection[Any]], object]]:
    lines = StringIO()
    for number in range(1, rows + 1):
        lines.write(f"{number}\tnew\t{number}.25\t{number % 1000}\tnote {number:032x}\t2026-01-01\n")

    def copy(connection: psycopg.Connection[Any]) -> None:
        with connection.cursor().copy(f"COPY {table} FROM STDIN") as into:
            into.write(lines.getvalue())

    return {
        "INSERT … SELECT": lambda connection: connection.execute(f"INSERT INTO {table} {ROWS_OF.format(rows=rows)}"),
        "UPDATE": lambda connection: connection.execute(f"UPDATE {table} SET status = 'open', changed_at = now()"),
        "DELETE": lambda connection: connection.execute(f"DELETE FROM {table}"),
        "COPY": copy,
    }


def require_events(connection: psycopg.Connection[Any], rows: int) -> None:
    [found] = connection.execute(EVENTS, ["db.public.bench_watched.%"]).fetchall()
    if found != (rows, rows):
        raise AssertionError(f"{found[0]} events of {found[1]} rows for {rows} changes")


def bulk_table(grounds: Sequence[Ground], rows: int) -> Iterator[str]:
    names = list(grounds[0].took)
    plain = {name: median(grounds[0].took[name]) for name in names}
    yield f"| {rows:,} rows, seconds to the commit and ratio to the unwatched table | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for ground in grounds:
        cells = [f"{median(ground.took[name]):.2f} ({median(ground.took[name]) / plain[name]:.1f})" for name in names]
        yield f"| {ground.name} | {' | '.join(cells)} |"


def small_table(stack: Stack, rows: int) -> Iterator[str]:
    """Each commit changes one row."""
    rates = {}
    named = {
        "bench_unwatched": "unwatched",
        "bench_watched": "**watched**",
        "bench_each_row": "a trigger for each row, which wakes no process",
    }
    for table in named:
        with session(stack) as connection:
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table} {ROWS_OF.format(rows=1000)}")
            for statement in CLEAN:
                connection.execute(statement)
        began = time.perf_counter()
        threads = [threading.Thread(target=commit_often, args=(stack, table, number)) for number in range(SESSIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rates[table] = SESSIONS * COMMITS / (time.perf_counter() - began)
    yield f"| updates of one row, each a transaction, {SESSIONS} sessions | commits per second | ratio |"
    yield "|---|---|---|"
    for table, name in named.items():
        yield f"| {name} | {rates[table]:,.0f} | {rates[table] / rates['bench_unwatched']:.2f} |"


def commit_often(stack: Stack, table: str, number: int) -> None:
    with session(stack) as connection:
        for count in range(COMMITS):
            row = 1 + (count * SESSIONS + number) % 1000
            connection.execute(f"UPDATE {table} SET amount = amount + 1 WHERE id = %s", [row])


def savepoint_line(stack: Stack, rows: int) -> str:
    with session(stack) as connection:
        connection.execute("DELETE FROM bench_watched")
        connection.execute(f"INSERT INTO bench_watched {ROWS_OF.format(rows=rows)}")
        connection.execute("TRUNCATE triggers_event CASCADE")
        with connection.transaction():
            connection.execute("UPDATE bench_watched SET status = 'kept' WHERE id <= %s", [rows // 2])
            with connection.transaction(force_rollback=True):
                connection.execute("UPDATE bench_watched SET status = 'lost' WHERE id > %s", [rows // 2])
        [(kept, lost)] = connection.execute(
            "SELECT count(*) FILTER (WHERE data->'new'->>'status' = 'kept'), count(*) FILTER (WHERE data->'new'->>'status' = 'lost') "
            "FROM triggers_event"
        ).fetchall()
    return f"A savepoint with {rows - rows // 2:,} updates rolled back after {rows // 2:,}: {kept:,} events, {lost:,} of the savepoint."


def beside_line(stack: Stack, rows: int) -> str:
    """Every tenth of a second an event of another source."""
    dispatcher = stack.start("dispatcher")
    with session(stack) as connection:
        connection.execute("TRUNCATE triggers_event CASCADE")
        connection.execute("UPDATE bench_watched SET status = 'beside'")
        began = time.perf_counter()
        while left(connection, "db."):
            connection.execute(OTHER)
            time.sleep(0.1)
        took = time.perf_counter() - began
        while left(connection, "bench."):
            time.sleep(0.1)
        [([median_wait, long_wait, longest],)] = connection.execute(WAITED).fetchall()
    dispatcher.stop()
    return (
        f"Dispatch of the {rows:,} events of an UPDATE that no trigger matches: {took:.1f} s. Meanwhile an event of another source waits "
        f"{median_wait * 1000:,.0f} ms (median), {long_wait * 1000:,.0f} ms (p99), {longest * 1000:,.0f} ms at most."
    )


def left(connection: psycopg.Connection[Any], types: str) -> int:
    [(count,)] = connection.execute(LEFT, [types]).fetchall()
    return int(count)


def crash_lines(stack: Stack, rows: int, kills: int, say: Say) -> Iterator[str]:
    """PostgreSQL is killed at another moment of the same UPDATE each time."""
    found = []
    postgres = stack.servers.postgres
    assert postgres
    for number in range(kills):
        with session(stack) as connection:
            connection.execute("TRUNCATE triggers_event CASCADE")
            [(took,)] = [(timed(connection, rows, f"before {number}"),)]
            connection.execute("TRUNCATE triggers_event CASCADE")
        say(f"tables: crash {number + 1} of {kills}")
        thread = threading.Thread(target=update_until_killed, args=(stack, rows, number))
        thread.start()
        time.sleep(took * random.Random(number).uniform(0.1, 1.2))  # noqa: S311  (a moment)
        postgres.kill()
        thread.join()
        postgres.start()
        with session(stack) as connection:
            [(changed,)] = connection.execute(
                "SELECT count(*) FROM bench_watched WHERE status = %s", [f"crash {number}"]
            ).fetchall()
            [(events,)] = connection.execute("SELECT count(*) FROM triggers_event").fetchall()
        if changed != events or changed not in (0, rows):
            raise AssertionError(f"{changed} changes and {events} events after a crash")
        found.append(changed)
    yield (
        f"PostgreSQL killed {kills} times in an UPDATE of {rows:,} rows: all or nothing each time, changes and events alike "
        f"(all: {sum(count > 0 for count in found)}, nothing: {sum(count == 0 for count in found)})."
    )


def timed(connection: psycopg.Connection[Any], rows: int, status: str) -> float:
    began = time.perf_counter()
    connection.execute("UPDATE bench_watched SET status = %s", [status])
    return time.perf_counter() - began


def update_until_killed(stack: Stack, rows: int, number: int) -> None:
    try:
        with session(stack) as connection:
            timed(connection, rows, f"crash {number}")
    except psycopg.OperationalError:
        pass  # as meant


@contextmanager
def session(stack: Stack) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        yield connection


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kills", type=int, default=KILLS)
    chosen = parser.parse_args()
    for line in section(
        lambda said: print(f"… {said}", file=sys.stderr, flush=True), chosen.rows, chosen.rounds, chosen.kills
    ):
        print(line, flush=True)
