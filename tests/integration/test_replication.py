"""Each change of another database is one event, in the order of the commits, while its reader is killed again and again; and the WAL that
its server keeps during an outage is an alarm before the disk is full."""

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from config.stack.embedded import Postgres
from config.stack.embedded.server import HOST
from tests.support.foreign import PASSWORD, ForeignDatabase, Reading
from tests.support.migrated import copy_folder
from tests.support.points import Points
from tests.support.servers import TestServers, reachable_folder
from tests.support.stack import Stack, StackMaker, dead, eventually
from tests.support.standby import Standby
from triggers.models import Source
from triggers.sources.continuity import Gap
from triggers.sources.databases.pgoutput import Relation, RowChange, Truncate, Unchanged, decode
from triggers.sources.edit import create_source
from triggers.sources.runner import Received
from triggers.sources.secrets import add_secret

pytestmark = pytest.mark.chaos

KILLS, CHANGES = 20, 50_000
PART = CHANGES // KILLS
DEATHS = (
    "source_fenced",
    "source_recorded",
)  # in the transaction that records a batch, and between its commit and the confirmation
SLOW = 600.0

Change = tuple[str, int, int]  # operation, id, version


def add_source(stack: Stack, foreign: ForeignDatabase, **settings: Any) -> Source:
    with stack.orm():
        source = create_source("shop", kind="postgresql", settings={**foreign.settings, **settings}, by="test")
        add_secret(source, PASSWORD, by="test")
    return source


def write(foreign: ForeignDatabase, part: int) -> None:
    """2,500 changes: every fifth part in one transaction, the others in many of two sessions that overlap."""
    first = part * PART
    with psycopg.connect(foreign.owner_url) as one, psycopg.connect(foreign.owner_url) as other:
        if part % 5 == 0:
            one.execute(
                "INSERT INTO items SELECT n, 1, 'x' FROM generate_series(%s::int, %s::int) n", [first, first + PART - 1]
            )
            return
        for number in range(0, 500):
            id, session, late = first + number, *((one, other) if number % 2 else (other, one))
            session.execute("INSERT INTO items VALUES (%s, 1, 'x')", [id])
            session.execute("UPDATE items SET version = 2 WHERE id = %s", [id])
            session.execute("UPDATE items SET version = 3, filler = repeat('y', 300) WHERE id = %s", [id])
            session.execute("UPDATE items SET id = id + 1000000 WHERE id = %s", [id])
            if number % 3 == 0:
                late.commit()
            session.execute("DELETE FROM items WHERE id = %s", [id + 1000000])
        one.commit()
        other.commit()


def truth(foreign: ForeignDatabase) -> list[Change]:
    """The changes as a second slot has them, which nothing else has read."""
    rows = foreign.run(
        "SELECT data FROM pg_logical_slot_get_binary_changes('truth_' || %s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)",
        foreign.slot,
        foreign.publication,
    )
    found = []
    for (data,) in rows:
        match decode(data):
            case RowChange(operation, _, old, key, new):
                row = new or old or key
                assert row
                version = row[1]
                found.append((operation, number_of(row[0]), number_of(version) if new else 0))
            case Truncate(oids):
                found += [("truncate", 0, 0) for _ in oids]
            case Relation():
                pass
    return found


def number_of(value: bytes | None | Unchanged) -> int:
    assert isinstance(value, bytes)
    return int(value)


def seen(stack: Stack) -> list[Change]:
    rows = stack.query("SELECT type, data FROM triggers_event WHERE type LIKE 'db.%%' ORDER BY seq")
    return [
        (row["type"].rpartition(".")[2], row["data"]["pk"] or 0, (row["data"]["new"] or {}).get("version", 0))
        for row in rows
    ]


def count(stack: Stack) -> int:
    return int(stack.query("SELECT count(*) FROM triggers_event WHERE type LIKE 'db.%%'")[0]["count"])


def test_each_change_is_one_event_in_commit_order_while_the_reader_is_killed_twenty_times(
    make_stack: StackMaker, servers: TestServers, tmp_path: Path
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env={**points.env, "WAKEFUL_LEASE": "2s", "WAKEFUL_LEASE_RENEW": "500ms"})
    with ForeignDatabase(servers.database_url) as foreign:
        foreign.run("CREATE TABLE items (id int PRIMARY KEY, version int, filler text)")
        foreign.publish("items")
        foreign.run("SELECT pg_create_logical_replication_slot('truth_' || %s, 'pgoutput')", foreign.slot)
        add_source(stack, foreign)
        stack.start("dispatcher")
        runners = [stack.start("sources"), stack.start("sources")]

        for part in range(KILLS):
            points.arm(DEATHS[part // 2 % 2], f"kill@{2 + part % 3}")
            write(foreign, part)
            eventually(lambda: dead(runners))
            points.release_all()
            dead(runners)[0].restart(wait=False)
        expected = truth(foreign)
        eventually(lambda: count(stack) >= len(expected), SLOW)

        assert len(expected) == CHANGES
        assert seen(stack) == expected
        redelivered = stack.query("SELECT count(*) FROM triggers_redelivery")
        assert redelivered == [{"count": 0}]  # the position alone decides what is recorded
        assert not stack.query("SELECT 1 FROM triggers_poisonmessage")


UPHEAVALS = (
    "TRUNCATE items",
    "VACUUM FULL items",
    "BEGIN; DROP TABLE items; CREATE TABLE items (id int PRIMARY KEY, version int, filler text); "
    "ALTER PUBLICATION {publication} ADD TABLE items; COMMIT",
)
ROWS = 400  # of each of two sessions


def insert(foreign: ForeignDatabase, first: int) -> None:
    with psycopg.connect(foreign.owner_url, autocommit=True) as session:
        for id in range(first, first + ROWS):
            session.execute("INSERT INTO items VALUES (%s, 1, 'x')", [id])


def test_each_change_of_a_table_that_is_emptied_rewritten_and_made_again_under_load_is_one_event(
    make_stack: StackMaker, servers: TestServers, tmp_path: Path
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env={**points.env, "WAKEFUL_LEASE": "2s", "WAKEFUL_LEASE_RENEW": "500ms"})
    with ForeignDatabase(servers.database_url) as foreign, ThreadPoolExecutor(2) as writers:
        foreign.run("CREATE TABLE items (id int PRIMARY KEY, version int, filler text)")
        foreign.publish("items")
        foreign.run("SELECT pg_create_logical_replication_slot('truth_' || %s, 'pgoutput')", foreign.slot)
        add_source(stack, foreign)
        stack.start("dispatcher")
        runners = [stack.start("sources"), stack.start("sources")]

        for part in range(2 * len(UPHEAVALS)):
            points.arm(DEATHS[part % 2], "kill@2")
            writing = [writers.submit(insert, foreign, (2 * part + side) * ROWS) for side in range(2)]
            foreign.run(UPHEAVALS[part % len(UPHEAVALS)].format(publication=foreign.publication))
            for each in writing:
                each.result()
            eventually(lambda: dead(runners))
            points.release_all()
            dead(runners)[0].restart(wait=False)
        expected = truth(foreign)
        eventually(lambda: count(stack) >= len(expected), SLOW)

        assert (
            len(expected) == 2 * len(UPHEAVALS) * 2 * ROWS + 2
        )  # no event shows that the rows of a dropped table are gone
        assert seen(stack) == expected
        assert not stack.query("SELECT 1 FROM triggers_poisonmessage")
        assert not stack.query("SELECT 1 FROM triggers_sourcegap")


@pytest.fixture
def small_server() -> Iterator[Postgres]:
    """A server that gives a slot up rather than keep more than 96 MB of WAL: in place of a small disk."""
    with reachable_folder() as home:
        postgres = Postgres(home, durable=False)
        postgres.settings = postgres.settings | {"max_slot_wal_keep_size": "96MB", "max_wal_size": "64MB"}
        with postgres:
            yield postgres


def alarmed(stack: Stack) -> list[dict[str, Any]]:
    return stack.query(
        "SELECT text, remedy, ended_at IS NULL AS is_open FROM runs_alarm WHERE name = 'source-slot:shop' ORDER BY began_at"
    )


FILL = "INSERT INTO items SELECT n, 1, repeat('x', 1000) FROM generate_series(%s::int, %s::int) n"
STATUS = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s"
QUICK = {"WAKEFUL_SAFETY_LOOK": "1s", "WAKEFUL_LEASE": "2s", "WAKEFUL_LEASE_RENEW": "500ms"}


def test_wal_that_is_kept_during_an_outage_is_an_alarm_before_the_disk_is_full(
    make_stack: StackMaker, small_server: Postgres
) -> None:
    stack = make_stack(env=QUICK)
    with ForeignDatabase(small_server.url) as foreign:
        foreign.run("CREATE TABLE items (id int PRIMARY KEY, version int, filler text)")
        foreign.publish("items")
        add_source(stack, foreign, alarm_mb=16)
        stack.start("dispatcher")
        reader = stack.start("sources")
        foreign.run(FILL, 1, 10)
        eventually(lambda: count(stack) == 10)

        reader.kill()
        foreign.run(FILL, 11, 20_010)
        [alarm] = eventually(lambda: alarmed(stack))
        assert alarm["is_open"] and "MiB of WAL" in alarm["text"] and "manage.py slot drop shop" in alarm["remedy"]
        assert foreign.run(STATUS, foreign.slot) in ([("reserved",)], [("extended",)])
        reader.restart()
        eventually(lambda: count(stack) == 20_010, SLOW)
        foreign.run("CHECKPOINT")
        eventually(lambda: not alarmed(stack)[-1]["is_open"])


def test_a_lost_slot_is_shown_and_made_again_by_command_alone(make_stack: StackMaker, small_server: Postgres) -> None:
    stack = make_stack(env=QUICK)
    with ForeignDatabase(small_server.url) as foreign:
        foreign.run("CREATE TABLE items (id int PRIMARY KEY, version int, filler text)")
        foreign.publish("items")
        add_source(stack, foreign)
        reader = stack.start("sources")
        foreign.run(FILL, 1, 10)
        eventually(lambda: count(stack) == 10)

        reader.kill()
        for part in range(1, 7):
            foreign.run(FILL, 30_000 * part, 30_000 * part + 20_000)
            foreign.run("CHECKPOINT")
        eventually(lambda: foreign.run(STATUS, foreign.slot) == [("lost",)])
        reader.restart(wait=False)
        eventually(lambda: stack.query("SELECT 1 FROM triggers_reading WHERE error LIKE '%%is lost%%may be missing%%'"))
        stack.manage("slot", "drop", "shop", "--keep-publication")
        eventually(lambda: stack.query("SELECT 1 FROM triggers_reading WHERE error LIKE '%%does not exist%%'"))
        assert not foreign.run(STATUS, foreign.slot)
        stack.manage("slot", "create", "shop")
        eventually(lambda: foreign.run("SELECT 1 FROM pg_replication_slots WHERE active"))
        foreign.run("INSERT INTO items VALUES (0, 1, 'after the gap')")

        eventually(lambda: count(stack) == 11)
        [gap] = stack.query("SELECT detail FROM triggers_sourcegap")
        assert "have no events" in gap["detail"]


@pytest.fixture
def promotable() -> Iterator[tuple[Postgres, Standby]]:
    """A primary and a standby that copies its failover slots."""
    with reachable_folder() as home, Postgres(home, durable=False) as primary:
        with psycopg.connect(primary.url, autocommit=True) as session:
            session.execute("SELECT pg_create_physical_replication_slot('standby', true)")
        standby = Standby(primary, home / "standby")
        standby.settings = standby.settings | {
            "primary_slot_name": "standby",
            "hot_standby_feedback": "on",
            "sync_replication_slots": "on",
        }
        with standby:
            eventually(standby.is_streaming)
            yield primary, standby


def test_after_a_failover_reading_goes_on_and_changes_that_the_new_primary_lost_are_reported(
    promotable: tuple[Postgres, Standby],
) -> None:
    primary, standby = promotable
    foreign = ForeignDatabase(primary.url)
    foreign.__enter__()
    foreign.run("CREATE TABLE items (id int PRIMARY KEY)")
    foreign.run(f"CREATE PUBLICATION {foreign.publication} FOR TABLE items")
    foreign.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, false, true)", foreign.slot)
    items = Reading(foreign)
    items.connect()
    foreign.run("INSERT INTO items SELECT generate_series(1, 10)")
    items.read(10)
    with psycopg.connect(standby.url_of("postgres"), autocommit=True) as session:
        ready = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary"
        eventually(lambda: items.look() or session.execute(ready, [foreign.slot]).fetchall())
    [(sender,)] = foreign.run("SELECT pid FROM pg_stat_replication WHERE application_name = 'walreceiver'")
    os.kill(sender, signal.SIGSTOP)
    foreign.run("INSERT INTO items SELECT generate_series(11, 20)")
    items.read(10)
    foreign.session.close()
    primary.kill()
    items.crash()
    standby.promote()

    items.settings = replace(items.settings, url=f"postgresql://{foreign.role}@{HOST}:{standby.port}/{foreign.name}")
    with psycopg.connect(standby.url_of(foreign.name), autocommit=True) as session:
        session.execute("INSERT INTO items SELECT generate_series(21, 30)")
    lost, *after = items.read(11)
    items.crash()

    assert isinstance(lost, Gap) and "failed over to timeline 2" in lost.detail and "has lost" in lost.detail
    received = [message for message in (*items.messages[:20], *after) if isinstance(message, Received)]
    assert [message.payload.data["pk"] for message in received] == list(range(1, 31))
    assert len({message.id for message in received}) == 30 and after[0].id.startswith("2/")


def fill(foreign: ForeignDatabase, first: int, last: int) -> None:
    foreign.run("INSERT INTO items SELECT n, 1, repeat('x', 200) FROM generate_series(%s::int, %s::int) n", first, last)


def test_a_server_stops_within_seconds_while_its_reader_is_held_and_nothing_is_lost(make_stack: StackMaker) -> None:
    """It waits until each reader of a slot has confirmed all changes, and a reader that is held confirms none."""
    stack = make_stack(env={**QUICK, "WAKEFUL_MAX_BACKLOG": "500", "WAKEFUL_MAX_SOURCE_BACKLOG": "500"})
    with reachable_folder() as home, Postgres(home, durable=False) as server:
        foreign = ForeignDatabase(server.url)
        foreign.__enter__()
        foreign.run("CREATE TABLE items (id int PRIMARY KEY, version int, filler text)")
        foreign.publish("items")
        add_source(stack, foreign)
        stack.start("sources")
        fill(foreign, 1, 5_000)
        held = "SELECT 1 FROM triggers_reading WHERE held_since IS NOT NULL"
        eventually(lambda: stack.query(held))
        assert count(stack) < 5_000
        foreign.session.close()

        for kind in (
            signal.SIGINT,
            signal.SIGTERM,
        ):  # a fast shutdown, and a smart one, which waits for ordinary sessions, too
            assert server.process
            server.process.send_signal(kind)
            server.process.wait(30)
            server.start()
            eventually(lambda: stack.query(held))

        stack.start("dispatcher")
        eventually(lambda: count(stack) == 5_000, SLOW)
        assert [pk for _, pk, _ in seen(stack)] == list(range(1, 5_001))
        assert not stack.query("SELECT 1 FROM triggers_poisonmessage")


def test_a_server_that_was_restored_and_has_grown_is_a_gap_and_each_of_its_changes_is_one_event(
    make_stack: StackMaker,
) -> None:
    stack = make_stack(env=QUICK)
    with reachable_folder() as home, Postgres(home, durable=False) as server:
        foreign = ForeignDatabase(server.url)
        foreign.__enter__()
        foreign.run("CREATE TABLE items (id int PRIMARY KEY, version int, filler text)")
        foreign.publish("items")
        add_source(stack, foreign)
        reader, copy = stack.start("sources"), server.data.with_name("copy")

        def pause(work: Any) -> None:
            """Of reader and server, and the server starts again after it."""
            reader.kill()
            foreign.session.close()
            server.stop()
            work()
            server.start()
            foreign.session = psycopg.connect(foreign.owner_url, autocommit=True)

        def restore() -> None:
            shutil.rmtree(server.data)
            shutil.move(copy, server.data)

        fill(foreign, 1, 10)
        eventually(lambda: count(stack) == 10)
        pause(lambda: copy_folder(server.data, copy))
        fill(foreign, 11, 20)
        reader.restart()
        eventually(lambda: count(stack) == 20)
        pause(restore)
        fill(foreign, 101, 110)
        foreign.run("CREATE TABLE others AS SELECT repeat(md5(n::text), 20) FROM generate_series(1, 5000) n")
        fill(foreign, 111, 120)
        reader.restart(wait=False)

        eventually(lambda: count(stack) == 40)
        assert [pk for _, pk, _ in seen(stack)] == [*range(1, 21), *range(101, 121)]
        assert stack.query("SELECT reason FROM triggers_sourcegap") == [{"reason": "restored"}]
        eventually(lambda: stack.query("SELECT 1 FROM triggers_reading WHERE error = ''"))
        foreign.session.close()
