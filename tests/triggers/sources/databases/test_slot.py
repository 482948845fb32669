"""Changes of a database that we do not own become events, each once and in the order of the commits."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.support.foreign import PASSWORD, ForeignDatabase, Reading
from tests.support.servers import TestServers
from tests.support.stack import eventually
from triggers.sources.continuity import Gap
from triggers.sources.databases import slot_reader as slots
from triggers.sources.databases import snapshot
from triggers.sources.databases.wire import Wire, lsn_of
from triggers.sources.runner import Poison, Received, SourceError

TABLE = (
    "CREATE TABLE orders (id int PRIMARY KEY, status text, amount numeric, note jsonb, placed timestamptz, tags text[])"
)


@pytest.fixture
def reading(foreign: ForeignDatabase) -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def make(**settings: Any) -> Reading:
        made.append(Reading(foreign, **settings))
        return made[-1]

    yield make
    for one in made:
        if one.reader:
            one.reader.close()


def data(message: Received | Poison) -> Any:
    assert isinstance(message, Received)
    return message.payload.data


def test_each_change_is_an_event_with_its_old_and_new_values(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run(TABLE)
    foreign.publish("orders")
    orders = reading()
    orders.connect().read(0.1)
    foreign.run(
        "INSERT INTO orders VALUES (1, 'open', 12.50, '{\"a\": [1, null]}', '2026-11-23 05:18:00.5+01', '{x,\"y z\",NULL}')"
    )
    foreign.run("UPDATE orders SET status = 'paid'")
    foreign.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    foreign.run("UPDATE orders SET status = 'sent', amount = 12345678901234567890.12")
    foreign.run("UPDATE orders SET id = 2")
    foreign.run("DELETE FROM orders")
    foreign.run("TRUNCATE orders")

    inserted, paid, sent, moved, deleted, truncated = orders.read(6)

    row = {
        "id": 1,
        "status": "open",
        "amount": 12.5,
        "note": {"a": [1, None]},
        "placed": "2026-11-23T04:18:00.5+00:00",
        "tags": ["x", "y z", None],
    }
    assert data(inserted) == {"pk": 1, "old": None, "new": row, "changed": []}
    assert data(paid) == {"pk": 1, "old": None, "new": row | {"status": "paid"}, "changed": None}
    later = row | {"status": "sent", "amount": "12345678901234567890.12"}
    assert data(sent) == {"pk": 1, "old": row | {"status": "paid"}, "new": later, "changed": ["status", "amount"]}
    assert data(moved) == {"pk": 2, "old": later, "new": later | {"id": 2}, "changed": ["id"]}
    assert data(deleted) == {"pk": 2, "old": later | {"id": 2}, "new": None, "changed": []}
    assert data(truncated) == {"pk": None, "old": None, "new": None, "changed": []}
    names = [message.type for message in orders.messages if isinstance(message, Received)]
    operations = ("insert", "update", "update", "update", "delete", "truncate")
    assert names == [f"db.public.orders.{operation}" for operation in operations]
    assert isinstance(inserted, Received) and inserted.subject == "public.orders/1" and inserted.time
    assert len({message.id for message in orders.messages}) == 6


def test_a_transaction_is_read_in_parts_and_goes_on_in_its_middle_after_a_crash(
    foreign: ForeignDatabase, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "BATCH", 7)
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.publish("orders")
    orders = reading()
    orders.connect().read(0.1)
    late = psycopg.connect(foreign.owner_url)
    late.execute("INSERT INTO orders SELECT generate_series(1000, 1009)")  # begins first, and is committed last
    foreign.run("INSERT INTO orders SELECT generate_series(1, 30)")
    late.commit()
    late.close()
    for _ in range(5):
        assert len(orders.read(1)) <= 7
        orders.crash()
    orders.read(40 - len(orders.messages))

    assert [data(message)["pk"] for message in orders.messages] == [*range(1, 31), *range(1000, 1010)]
    assert len({message.id for message in orders.messages}) == 40


def test_a_batch_that_was_recorded_and_not_confirmed_is_not_read_again(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.publish("orders")
    orders = reading()
    orders.connect().read(0.1)
    foreign.run("INSERT INTO orders VALUES (1)")
    orders.read(1, confirm=False)
    orders.crash()
    foreign.run("INSERT INTO orders VALUES (2)")

    assert [data(message)["pk"] for message in orders.read(1)] == [2]


def test_large_values_that_are_left_out_are_named_and_secrets_are_never_read(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run("CREATE TABLE pages (id int PRIMARY KEY, title text, body text, api_token text DEFAULT 'x', note text)")
    foreign.run("ALTER TABLE pages ALTER body SET STORAGE EXTERNAL")
    foreign.publish("pages")
    pages = reading(exclude="pages.note")
    pages.connect().read(0.1)
    foreign.run("INSERT INTO pages VALUES (1, 'a', repeat('x', 10000)), (2, 'b', repeat('x', 2000000))")
    foreign.run("UPDATE pages SET title = 'c' WHERE id = 1")
    foreign.run("ALTER TABLE pages REPLICA IDENTITY FULL")
    foreign.run("UPDATE pages SET title = 'd' WHERE id = 1")

    first, second, renamed, whole = pages.read(4)

    assert data(first)["new"]["body"] == "x" * 10000
    assert (data(second)["new"], data(second)["omitted"]) == ({"id": 2, "title": "b"}, ["body"])
    assert (data(renamed)["new"], data(renamed)["unchanged"]) == ({"id": 1, "title": "c"}, ["body"])
    assert data(whole)["new"]["body"] == "x" * 10000
    assert data(whole)["changed"] == ["title"] and "unchanged" not in data(whole)


def test_a_snapshot_reads_each_row_once_also_after_a_crash_and_changes_come_after_it(
    foreign: ForeignDatabase, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BATCH", 40)
    monkeypatch.setattr(snapshot, "WINDOW", 2)
    foreign.run("CREATE TABLE empty (id int)")
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY, day date, filler text) PARTITION BY LIST (id)")
    foreign.run("CREATE TABLE odd PARTITION OF orders FOR VALUES IN (1, 3)")
    foreign.run("CREATE TABLE rest PARTITION OF orders DEFAULT")
    foreign.run("INSERT INTO orders SELECT n, 'infinity', repeat('x', 200) FROM generate_series(1, 300) n")
    foreign.run("DELETE FROM orders WHERE id BETWEEN 10 AND 150")
    foreign.run(
        f"CREATE PUBLICATION {foreign.publication} FOR TABLE empty, orders WHERE (id <> 5) WITH (publish_via_partition_root)"
    )
    foreign.run(f"SELECT pg_create_logical_replication_slot('{foreign.slot}', 'pgoutput')")
    foreign.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {foreign.role}")
    orders = reading(snapshot=True)

    while len(orders.messages) < 158:
        orders.read(1)
        orders.crash()
    foreign.run("UPDATE orders SET day = 'today' WHERE id = 1")
    orders.read(1)

    *rows, updated = orders.messages
    assert {message.type for message in rows if isinstance(message, Received)} == {"db.public.orders.snapshot"}
    expected = [n for n in range(1, 301) if n != 5 and not 10 <= n <= 150]
    assert sorted(data(message)["pk"] for message in rows) == expected
    assert data(rows[0]) == {
        "pk": 1,
        "old": None,
        "new": {"id": 1, "day": "infinity", "filler": "x" * 200},
        "changed": [],
    }
    assert isinstance(updated, Received) and updated.type == "db.public.orders.update"


def test_a_snapshot_that_may_not_be_read_shows_which_right_is_missing(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.run("INSERT INTO orders VALUES (1)")
    foreign.publish("orders")

    first, second = reading(snapshot=True), reading(snapshot=True)
    with pytest.raises(SourceError) as failed:
        first.read(1)
    assert "GRANT SELECT" in failed.value.remedy
    first.reader.close()
    foreign.run(f"GRANT SELECT ON orders TO {foreign.role}")
    foreign.run("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    second.has_crashed = True
    with pytest.raises(SourceError, match="row-level security"):
        second.read(1)


def test_an_excluded_column_is_one_of_its_table_in_any_schema_and_in_any_partition(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run("CREATE TABLE customers (id int PRIMARY KEY, phone text) PARTITION BY LIST (id)")
    foreign.run("CREATE TABLE north PARTITION OF customers FOR VALUES IN (1)")
    foreign.run("CREATE TABLE staff (id text PRIMARY KEY, phone text)")
    foreign.publish("customers", "staff")
    people = reading(exclude="customers.phone, public.staff.phone")
    people.connect().read(0.1)
    foreign.run("INSERT INTO customers VALUES (1, '0123')")
    foreign.run("INSERT INTO staff VALUES (repeat('x', 3000), '0456')")

    customer, clerk = people.read(2)

    assert data(customer)["new"] == {"id": 1}
    assert data(clerk)["new"] == {"id": "x" * 3000}
    assert isinstance(clerk, Received) and len(clerk.subject) == 500  # an index holds it


def test_tables_of_wakeful_that_come_to_the_publication_make_no_events(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    for table in ("orders", "triggers_event", "triggers_reading"):
        foreign.run(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    foreign.publish("orders")
    orders = reading()
    orders.connect().read(0.1)
    foreign.run(f"ALTER PUBLICATION {foreign.publication} ADD TABLE triggers_reading")
    for table in ("triggers_reading", "orders"):
        foreign.run(f"INSERT INTO {table} VALUES (1)")

    [order] = orders.read(1)
    orders.crash()

    assert isinstance(order, Received) and order.type == "db.public.orders.insert"
    assert "Wakeful's own" in str(refused(orders))


def test_changes_of_a_time_without_publication_are_reported(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.publish("orders")
    foreign.run(f"DROP PUBLICATION {foreign.publication}")
    foreign.run("INSERT INTO orders VALUES (1)")
    foreign.run(f"CREATE PUBLICATION {foreign.publication} FOR TABLE orders")
    foreign.run("INSERT INTO orders VALUES (2)")

    orders = reading()
    try:
        gap, inserted = orders.read(2)
    except SourceError as error:  # before PostgreSQL 18
        assert "manage.py slot drop shop --keep-publication" in error.remedy
    else:
        assert isinstance(gap, Gap) and "Changes of that time have no events" in gap.detail
        assert data(inserted)["pk"] == 2


def test_a_slot_that_is_missing_or_in_use_or_made_again_is_reported(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    orders, other = reading(), reading()
    missing = refused(orders)
    foreign.publish("orders")
    orders.connect().read(0.1)
    foreign.run("INSERT INTO orders VALUES (1)")
    orders.read(1)
    in_use = refused(other)
    orders.crash()
    eventually(
        lambda: not foreign.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active", foreign.slot)
    )
    foreign.run("SELECT pg_drop_replication_slot(%s)", foreign.slot)
    gone = refused(orders)
    foreign.run("INSERT INTO orders VALUES (2)")
    foreign.run(f"SELECT pg_create_logical_replication_slot('{foreign.slot}', 'pgoutput')")
    foreign.run("INSERT INTO orders VALUES (3)")
    gap, inserted = orders.read(2)

    assert "does not exist" in str(missing) and "manage.py slot create shop" in missing.remedy
    assert "in use by wakeful-shop" in str(in_use)
    assert "may be missing" in str(gone) and "in silence" in gone.remedy
    assert isinstance(gap, Gap) and "made again" in gap.detail
    assert data(inserted)["pk"] == 3


def test_a_wrong_password_a_wrong_role_and_a_wrong_slot_are_reported(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.publish("orders")
    foreign.run(f"ALTER ROLE {foreign.role} NOREPLICATION")
    may_not = refused(reading())
    foreign.run(f"ALTER ROLE {foreign.role} REPLICATION PASSWORD 'another'")
    wrong_password = refused(reading())
    foreign.run(f"ALTER ROLE {foreign.role} PASSWORD '{PASSWORD}'")
    foreign.run("SELECT pg_create_physical_replication_slot(%s)", f"{foreign.slot}_other")
    other_plugin = refused(reading(slot=f"{foreign.slot}_other"))
    foreign.run("SELECT pg_drop_replication_slot(%s)", f"{foreign.slot}_other")
    no_publication = refused(reading(publication="nothing"))

    assert "attribute REPLICATION" in may_not.remedy and "permission denied" in str(may_not)
    assert "password" in str(wrong_password)
    assert "one of physical replication" in str(other_plugin)
    assert "nothing does not exist" in str(no_publication)


def test_logical_messages_with_the_prefix_are_events_and_an_idle_slot_lets_the_server_drop_its_log(
    foreign: ForeignDatabase, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "TELL_EVERY", 0.0)
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.run("CREATE TABLE others (id int PRIMARY KEY)")
    foreign.publish("orders")
    orders = reading(messages="shop.")
    orders.connect().read(0.1)
    emit = "SELECT pg_logical_emit_message(%s, %s, %s)"
    foreign.run(emit, True, "shop.closing", "soon")
    foreign.run(emit, False, "shop.closed", "now")
    foreign.run(emit, True, "other.closing", "soon")
    [soon, now] = orders.read(2)
    orders.crash()
    foreign.run("INSERT INTO others SELECT generate_series(1, 1000)")
    [(written,)] = foreign.run("SELECT pg_current_wal_lsn()")

    assert isinstance(soon, Received) and (soon.type, soon.subject) == ("db.message", "shop.closing")
    assert [data(message)["content"] for message in (soon, now)] == ["soon", "now"]
    confirmed = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    eventually(lambda: orders.look() or foreign.run(confirmed, written, foreign.slot) == [(True,)])
    assert orders.messages == [soon, now]


def test_a_transaction_whose_commit_follows_a_message_at_once_is_read_after_a_crash(
    foreign: ForeignDatabase, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "BATCH", 1)
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.publish("orders")
    orders = reading(messages="shop.")
    orders.connect().read(0.1)
    foreign.run("BEGIN; INSERT INTO orders VALUES (1); SELECT pg_logical_emit_message(false, 'shop.', 'now'); COMMIT")
    [message] = orders.read(1)
    orders.crash()

    assert data(message)["content"] == "now"
    assert [data(one)["pk"] for one in orders.read(1)] == [1]


@pytest.mark.parametrize("encoding", ["WIN1252", "SQL_ASCII"])
def test_a_byte_that_has_no_equivalent_in_utf8_is_a_replacement_and_stops_nothing(
    servers: TestServers, encoding: str
) -> None:
    with ForeignDatabase(servers.database_url, encoding=encoding) as foreign:
        foreign.run("CREATE TABLE notes (id int PRIMARY KEY, body text)")
        foreign.run(f"GRANT SELECT ON notes TO {foreign.role}")
        foreign.publish("notes")
        foreign.run("SET client_encoding = 'SQL_ASCII'")  # bytes as old clients store them
        foreign.run(r"INSERT INTO notes VALUES (1, E'caf\x81')")
        notes = Reading(foreign, snapshot=True)
        notes.connect()
        snapshot, inserted = notes.read(2)
        foreign.run(r"INSERT INTO notes VALUES (2, E'caf\x81'), (3, E'caf\xc3\xa9')")
        second, third = notes.read(2)
        notes.crash()

    assert data(snapshot)["new"] == data(inserted)["new"] == {"id": 1, "body": "caf\ufffd"}
    assert data(second)["new"] == {"id": 2, "body": "caf\ufffd"}
    # Bytes of no encoding are mostly UTF-8.
    assert data(third)["new"]["body"] == {"WIN1252": "cafÃ©", "SQL_ASCII": "café"}[encoding]


def test_changes_before_an_error_are_handed_over_with_it(
    foreign: ForeignDatabase, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign.run("CREATE TABLE items (id int PRIMARY KEY)")
    foreign.publish("items")
    items = reading()
    reader = items.connect()
    reader.read(0.1)
    foreign.run("INSERT INTO items VALUES (1)")
    foreign.run("INSERT INTO items VALUES (2)")
    receive = Wire.receive

    def fail_at_two(wire: Wire, wait: float) -> Any:
        frame = receive(wire, wait)
        if frame and frame.data.startswith(b"I") and frame.data.endswith(b"2"):
            raise psycopg.OperationalError("the connection is lost")
        return frame

    monkeypatch.setattr(Wire, "receive", fail_at_two)
    batch = reader.read(0.2)
    while not batch.messages:
        batch = reader.read(0.2)
    assert [data(message)["pk"] for message in batch.messages] == [1]
    assert batch.failure and "the connection is lost" in str(batch.failure)

    monkeypatch.undo()
    items.position = batch.position
    items.crash()
    assert [data(message)["pk"] for message in items.read(1)] == [2]


def test_rows_of_a_table_that_is_rewritten_during_its_snapshot_all_come(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run("CREATE TABLE items (id int PRIMARY KEY, filler text)")
    foreign.run("INSERT INTO items SELECT n, repeat('x', 50) FROM generate_series(1, 1500) n")
    foreign.run(f"GRANT SELECT ON items TO {foreign.role}")
    foreign.publish("items")
    items = reading(snapshot=True)
    items.read(500)  # the first part
    foreign.run("DELETE FROM items WHERE id <= 250")
    foreign.run("VACUUM FULL items")  # later rows now stand where the first ones stood

    while items.reader.place.snapshot is not None:
        items.look()
    recorded: dict[str, Any] = {}
    for message in items.messages:  # as they are recorded: of equal ids the first counts
        recorded.setdefault(message.id, message)
    rows = {data(one)["pk"] for one in recorded.values() if one.type.endswith(".snapshot")}
    assert rows >= set(range(251, 1501))


def test_changes_before_a_change_of_the_primary_key_keep_the_key_of_their_time(
    foreign: ForeignDatabase, reading: Callable[..., Reading]
) -> None:
    foreign.run("CREATE TABLE items (id int PRIMARY KEY, code text NOT NULL UNIQUE)")
    foreign.publish("items")
    items = reading()
    items.connect().read(0.1)
    foreign.run("INSERT INTO items VALUES (1, 'a')")
    foreign.run("DELETE FROM items")
    foreign.run("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (code)")
    foreign.run("INSERT INTO items VALUES (2, 'b')")

    subjects = [message.subject for message in items.read(3) if isinstance(message, Received)]

    assert subjects == ["public.items/1", "public.items/1", "public.items/b"]


@pytest.mark.parametrize("why", ["its server stops", "nothing may be read for a while"])
def test_a_reader_that_is_held_lets_the_server_go_and_goes_on_in_the_middle_of_a_transaction(
    foreign: ForeignDatabase, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    foreign.run("CREATE TABLE items (id int PRIMARY KEY)")
    foreign.publish("items")
    items = reading()
    items.connect().read(0.1)
    foreign.run("INSERT INTO items SELECT generate_series(1, 1200)")
    items.read(500)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
    assert foreign.run(sessions, foreign.role) == [(2,)]

    items.reader.stay()
    assert foreign.run(sessions, foreign.role) == [(2,)]  # for a moment it stays
    if why == "its server stops":
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND backend_type = 'client backend'"
        foreign.run(end, foreign.role)
        eventually(lambda: items.reader.stay() or items.reader.wire is None)
    else:
        monkeypatch.setattr(slots, "HELD", 0.0)
        items.reader.stay()
    items.reader.stay()
    eventually(lambda: foreign.run(sessions, foreign.role) == [(0,)])

    items.read(1200 - len(items.messages))
    assert [data(message)["pk"] for message in items.messages] == list(range(1, 1201))


def test_an_idle_reader_that_was_let_go_reports_no_gap_after_a_crash(
    foreign: ForeignDatabase, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an idle slot has passed is confirmed to the server only after it is recorded."""
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.run("CREATE TABLE others (id int PRIMARY KEY)")
    foreign.publish("orders")
    orders = reading()
    orders.look()
    foreign.run("INSERT INTO others SELECT generate_series(1, 1000)")
    [(written,)] = foreign.run("SELECT pg_current_wal_lsn()::text")
    orders.reader.idle_at = math.inf  # it has recorded its place a moment ago

    def look_until_passed() -> bool:
        orders.reader.tell_at = 0.0
        orders.look()
        return bool(orders.reader.place.lsn >= lsn_of(written))

    eventually(look_until_passed)
    monkeypatch.setattr(slots, "HELD", 0.0)
    orders.reader.stay()
    assert orders.reader.wire is None
    eventually(look_until_passed)
    orders.crash()

    assert orders.look() == []


def test_a_gap_that_waits_to_be_handed_over_is_kept_when_the_server_is_let_go(
    foreign: ForeignDatabase, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_slot_again() -> None:
        drop = "SELECT pg_drop_replication_slot(%s)"
        eventually(lambda: not foreign.run("SELECT 1 FROM pg_replication_slots WHERE active"))
        foreign.run(drop, foreign.slot)
        foreign.run("INSERT INTO orders SELECT max(id) + 1 FROM orders")
        foreign.run(f"SELECT pg_create_logical_replication_slot('{foreign.slot}', 'pgoutput')")

    monkeypatch.setattr(slots, "HELD", 0.0)
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.publish("orders")
    orders = reading()
    orders.look()
    foreign.run("INSERT INTO orders VALUES (1)")
    orders.read(1)
    stored = orders.position["lsn"]
    orders.crash()
    make_slot_again()
    orders.connect().stay()  # the gap is found, and nothing may be read
    make_slot_again()

    [gap] = orders.read(1)
    assert isinstance(gap, Gap) and gap.start == stored


def refused(reading: Reading) -> SourceError:
    with pytest.raises(SourceError) as failed:
        reading.connect()
    return failed.value
