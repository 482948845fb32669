"""A server that was restored from a copy of its disk is noticed, also when it has grown past the stored place, and no change that it
still has or makes is passed over. A server that crashed is none."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from config.stack.embedded import Postgres
from tests.support.examples import some_cases
from tests.support.foreign import ForeignDatabase, Reading
from tests.support.migrated import copy_folder
from tests.support.servers import reachable_folder
from triggers.sources.continuity import Gap, Reason
from triggers.sources.databases import slot_reader as slots
from triggers.sources.databases.slot import ReplicationSlot
from triggers.sources.runner import Received

FILLER = "CREATE TABLE filler AS SELECT repeat(md5(g::text), 20) FROM generate_series(1, 5000) g"
NOW = "SELECT pg_current_wal_lsn() - '0/0'"


class Restorable:
    """A server with a copy of its disk."""

    def __init__(self, server: Postgres) -> None:
        self.server, self.copy = server, server.data.with_name("copy")
        self.foreign = ForeignDatabase(server.url)
        self.foreign.__enter__()
        self.foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
        self.foreign.publish("orders")
        self.orders = self.reading()

    def reading(self, **settings: Any) -> Reading:
        return Reading(self.foreign, **settings)

    def save(self) -> None:
        self.stop()
        copy_folder(self.server.data, self.copy)
        self.start()

    def restore(self) -> None:
        self.stop()
        shutil.rmtree(self.server.data)
        shutil.move(self.copy, self.server.data)
        self.start()

    def crash(self) -> None:
        """The confirmations of the slot since the last checkpoint are lost."""
        self.foreign.session.close()
        self.server.kill()
        self.start()

    def stop(self) -> None:
        if self.orders.reader:
            self.orders.crash()
        self.foreign.session.close()
        self.server.stop()

    def start(self) -> None:
        self.server.start()
        self.foreign.session = psycopg.connect(self.foreign.owner_url, autocommit=True)

    def insert(self, first: int, last: int) -> None:
        self.foreign.run("INSERT INTO orders SELECT generate_series(%s::int, %s::int)", first, last)

    def read_to_end(self) -> list[Any]:
        """Until nothing of ours is written before the end of the log."""
        [(end,)] = self.foreign.run(NOW)
        found: list[Any] = []
        while not (self.orders.reader and self.orders.reader.place.lsn >= end):
            found += self.orders.look()
        return found


@pytest.fixture(scope="module")
def empty_server() -> Iterator[Path]:
    """The folder of a server without a table, which does not run: a copy starts faster than `initdb` makes one."""
    with reachable_folder() as home:
        with Postgres(home, durable=False) as server:
            pass
        (server.place / "port").unlink()  # each copy has one of its own
        yield server.place


@pytest.fixture
def restorable(empty_server: Path) -> Iterator[Restorable]:
    with reachable_folder() as home:
        copy_folder(empty_server, home / "postgres")
        with Postgres(home, durable=False) as server:
            made = Restorable(server)
            yield made
            made.foreign.session.close()
            if made.orders.reader:
                made.orders.reader.close()


def keys(found: list[Any]) -> list[Any]:
    return [one.payload.data["pk"] if one.payload.data.get("pk") else one.payload.data for one in received(found)]


def received(found: list[Any]) -> list[Received]:
    return [cast(Received, one) for one in found if not isinstance(one, Gap)]


def gaps(found: list[Any]) -> list[Gap]:
    return [one for one in found if isinstance(one, Gap)]


def commit_alone(restorable: Restorable) -> None:
    restorable.insert(2, 12)
    restorable.orders.read(11)


def read_a_part(restorable: Restorable) -> None:
    restorable.insert(2, 1201)
    restorable.orders.read(500)


def fall_idle(restorable: Restorable) -> None:
    restorable.foreign.run("CREATE TABLE others AS SELECT repeat('x', 100) FROM generate_series(1, 2000)")
    restorable.read_to_end()


def send_a_message(restorable: Restorable) -> None:
    restorable.foreign.run("SELECT pg_logical_emit_message(false, 'shop.', 'a message of some length')")
    restorable.orders.read(1)


# Every second one in `make test`, where each server costs as much as fifty other tests.
PLACES = [commit_alone, read_a_part, fall_idle, send_a_message]
CASES = [
    pytest.param(recorded, has_grown, marks=[] if number % 2 == has_grown else [pytest.mark.chaos])
    for number, recorded in enumerate(PLACES)
    for has_grown in (True, False)
]


@pytest.mark.parametrize(("recorded", "has_grown"), CASES)
def test_a_restored_server_is_noticed_and_none_of_its_changes_is_passed_over(
    restorable: Restorable, recorded: Any, has_grown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "TELL_EVERY", 0.0)
    orders = restorable.orders = restorable.reading(messages="shop.")
    restorable.insert(1, 1)
    orders.read(1)
    restorable.save()
    recorded(restorable)
    before = {message.id for message in orders.messages}
    restorable.restore()
    restorable.insert(2000, 2009)
    if has_grown:
        restorable.foreign.run(FILLER)
    restorable.insert(9999, 9999)

    found = restorable.read_to_end()

    [gap] = gaps(found)
    assert gap.reason is Reason.RESTORED and "set back" in gap.detail
    assert keys(found)[-11:] == [*range(2000, 2010), 9999]
    assert not {message.id for message in received(found)[-11:]} & before
    assert {message.id for message in received(found)[:-11]} <= before  # read twice: duplicates
    orders.crash()
    assert not restorable.read_to_end()


def test_a_change_at_a_place_that_another_one_had_is_another_event(restorable: Restorable) -> None:
    """The copy goes on at the same place with a transaction of the same number."""
    orders = restorable.orders
    restorable.insert(1, 1)
    orders.read(1)
    restorable.save()
    restorable.insert(2, 2)
    [before] = received(orders.read(1))
    restorable.restore()
    restorable.insert(3, 3)

    found = restorable.read_to_end()

    [*_, after] = received(found)
    assert (after.headers["lsn"], after.headers["xid"]) == (before.headers["lsn"], before.headers["xid"])
    assert len(gaps(found)) == 1 and keys(found)[-1] == 3 and after.id != before.id


def test_a_snapshot_after_a_restore_has_ids_of_its_own(restorable: Restorable) -> None:
    restorable.foreign.run(f"GRANT SELECT ON orders TO {restorable.foreign.role}")
    restorable.insert(1, 1)
    orders = restorable.orders = restorable.reading(snapshot=True)
    restorable.save()
    restorable.insert(2, 3)
    restorable.read_to_end()
    restorable.restore()
    restorable.insert(4, 5)
    restorable.foreign.run(FILLER)

    found = restorable.read_to_end()

    snapshot = [message for message in received(found) if message.type.endswith(".snapshot")]
    assert keys(list(snapshot)) == [1, 4, 5]
    assert len({message.id for message in orders.messages if "snapshot" in message.id}) == 6  # with 1, 2, 3 before


@pytest.mark.parametrize("recorded", some_cases([commit_alone, read_a_part, fall_idle, send_a_message]))
@pytest.mark.parametrize("crashes", ["reader", "server"])
def test_after_a_crash_reading_goes_on_without_a_gap_or_a_duplicate(
    restorable: Restorable, recorded: Any, crashes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "TELL_EVERY", 0.0)
    orders = restorable.orders = restorable.reading(messages="shop.")
    restorable.insert(1, 1)
    orders.read(1)
    recorded(restorable)
    if crashes == "server":
        orders.crash()
        restorable.crash()
    else:
        monkeypatch.setattr(slots.SlotReader, "confirm", lambda reader, batch: None)
        restorable.insert(5000, 5000)
        orders.read(1)
        restorable.insert(5001, 5001)
        orders.read(1)
        orders.crash()
        monkeypatch.undo()
    restorable.insert(9999, 9999)

    found = restorable.read_to_end()

    assert not gaps(found) and keys(found)[-1] == 9999
    assert len({message.id for message in orders.messages}) == len(orders.messages)


@pytest.mark.parametrize("why", ["the position is of an earlier version", "the publication is another one"])
def test_the_last_sent_change_is_not_requested_where_the_slot_may_not_send_it(restorable: Restorable, why: str) -> None:
    orders, foreign = restorable.orders, restorable.foreign
    other = f"{foreign.publication}_other"
    foreign.run("CREATE TABLE items (id int PRIMARY KEY)")
    foreign.run(f"CREATE PUBLICATION {other} FOR TABLE items")
    restorable.insert(1, 1000)
    last = keys(orders.read(500, confirm=False))[-1]  # at most the 999th: a batch has 500, and may come in parts
    foreign.run("INSERT INTO items VALUES (9998)")
    orders.crash()
    if why == "the position is of an earlier version":
        orders.marks = {}
        expected = list(range(last + 1, 1001))
    else:
        settings = {**foreign.settings, "publication": other}
        orders.settings = replace(ReplicationSlot().clean_settings(settings))
        expected = [9998]

    assert keys(orders.read(len(expected))) == expected
